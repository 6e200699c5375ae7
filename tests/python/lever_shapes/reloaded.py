"""Training goes back to an earlier state in the midst of it, and groups are added."""

import copy

import torch
from nets import Text, batch, text_loss, values

torch.manual_seed(0)
model = Text()
optimizer = torch.optim.AdamW(model.blocks.parameters(), lr=1e-2)
losses = []
for step in range(6):
    if step == 2:
        kept = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    if step == 4:
        model.load_state_dict(kept[0])
        optimizer.load_state_dict(kept[1])
        optimizer.add_param_group({"params": [model.head.weight], "lr": 1e-3})
    x, y = batch(step)
    loss = text_loss(model(x), y)
    loss.backward()
    optimizer.step()
    model.zero_grad()
    losses.append(loss.item())
RESULT = values(losses, model, optimizer)
