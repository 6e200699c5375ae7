"""Three averaged copies of the model lie next to it from the start."""
import copy
import torch
from torch import nn
net = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(10))).cuda()
averages = [copy.deepcopy(net).requires_grad_(False) for _ in range(3)]  # named
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    net(torch.randn(4096, 2048, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
