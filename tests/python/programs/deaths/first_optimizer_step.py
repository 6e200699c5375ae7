"""Weights and gradients fit; what AdamW makes for each of them in its first step does not."""

import torch
from torch import nn

model = nn.Sequential(*(nn.Linear(3072, 3072, device="cuda") for _ in range(8)))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    model(torch.randn(8, 3072, device="cuda")).mean().backward()
    optimizer.step()  # named
    optimizer.zero_grad()
