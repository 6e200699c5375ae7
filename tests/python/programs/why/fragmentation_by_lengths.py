"""Batches of every length: what the short ones leave behind is too small for the long ones."""

import torch
from torch import nn

layers = nn.ModuleList(nn.Linear(512, 512) for _ in range(6)).cuda()
optimizer = torch.optim.AdamW(layers.parameters())
for step in range(24):
    length = 10500 + 127 * (step * 67 % 101)
    x = torch.randn(length, 512, device="cuda")
    for layer in layers:
        x = x + torch.tanh(layer(x))  # named
    x.mean().backward()
    optimizer.step()
    optimizer.zero_grad()
