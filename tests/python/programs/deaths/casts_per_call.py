"""Autocast's cache is switched off, so that a cell that is called for each character keeps a cast of its weights each time."""
import torch
from torch import nn
cell = nn.Sequential(nn.Linear(2048, 2048), nn.Tanh()).cuda()
optimizer = torch.optim.SGD(cell.parameters(), lr=0.1)
for _ in range(3):
    hidden = torch.randn(16, 2048, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
        for _ in range(200):
            hidden = cell(hidden)  # named
    hidden.float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
