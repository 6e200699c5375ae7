"""A hook of parameters that keeps a copy of each gradient."""

import torch
from torch import nn

net = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4))).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
norms = {}
def remember(parameter):
    norms.setdefault(parameter, []).append(parameter.grad.clone())  # named
for parameter in net.parameters():
    parameter.register_post_accumulate_grad_hook(remember)
for step in range(1000):
    net(torch.randn(64, 1024, device="cuda")).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
