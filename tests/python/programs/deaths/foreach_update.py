"""Weights, gradients and states fit; the temporaries of the optimizer's foreach form do not."""
import torch
from torch import nn
net = nn.Sequential(*(nn.Linear(2048, 2048, bias=False) for _ in range(11))).cuda()
optimizer = torch.optim.Adam(net.parameters(), foreach=True, amsgrad=False)
for _ in range(4):
    net(torch.randn(8, 2048, device="cuda")).square().mean().backward()
    optimizer.step()  # named
    optimizer.zero_grad(set_to_none=False)
