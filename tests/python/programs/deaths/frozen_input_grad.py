"""Adversarial inputs are kept with their gradients for each batch of a data set."""
import torch
from torch import nn
net = nn.Linear(1024, 1024).cuda().requires_grad_(False)
attacked = []
for _ in range(400):
    x = torch.randn(512, 1024, device="cuda", requires_grad=True)  # named
    net(x).square().mean().backward()
    attacked.append(x)
