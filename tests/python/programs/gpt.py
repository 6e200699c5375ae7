"""Trains a small transformer; with a path, dumps PyTorch's own memory history of the run there.

With EXTRA_IN_STEP it makes one more request in that step.
"""

import os
import pickle
import sys

import torch
from torch import nn

steps = int(sys.argv[1])
own_history = sys.argv[2] if len(sys.argv) > 2 else None
if own_history:
    torch.cuda.memory._record_memory_history(context=None)
torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, dropout=0.1, activation="gelu")
model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda()
head = nn.Linear(128, 1000, device="cuda")
optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()])
side = torch.cuda.Stream()
for step in range(steps):
    x = torch.randn(8, 64, 128).cuda()
    with torch.cuda.stream(side):
        noise = torch.randn_like(x)
    torch.cuda.current_stream().wait_stream(side)
    if os.environ.get("EXTRA_IN_STEP") == str(step):
        torch.empty(777_777, dtype=torch.uint8, device="cuda")  # not in the plan
    noise.record_stream(torch.cuda.current_stream())
    loss = nn.functional.cross_entropy(head(model(x + noise)).flatten(0, 1), torch.zeros(512, dtype=int).cuda())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print("loss", loss.item())
torch.cuda.empty_cache()
if own_history:
    with open(own_history, "wb") as file:
        pickle.dump(torch.cuda.memory._snapshot()["device_traces"], file)
