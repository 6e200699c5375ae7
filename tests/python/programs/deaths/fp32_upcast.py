"""A half-precision model whose logits are turned to float32 for the loss."""
import torch
from torch import nn
net = nn.Sequential(nn.Embedding(32000, 128), nn.Linear(128, 32000)).cuda().bfloat16()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    tokens = torch.randint(0, 32000, (4, 512), device="cuda")
    logits = net(tokens).float()  # named
    nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
