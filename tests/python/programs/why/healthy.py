"""A training loop that fits."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(2048, 8192), nn.ReLU(), nn.Linear(8192, 2048)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(6):
    x = torch.randn(256, 2048, device="cuda")
    net(x).square().mean().backward()
    optimizer.step()  # named
    optimizer.zero_grad()
