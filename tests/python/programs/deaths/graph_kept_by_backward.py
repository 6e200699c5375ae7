"""Backward passes with retain_graph, whose losses are kept: each keeps its whole graph."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(1024, 2048), nn.Tanh(), nn.Linear(2048, 1024)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
history = []
for _ in range(200):
    loss = net(torch.randn(1024, 1024, device="cuda")).square().mean()  # named
    loss.backward(retain_graph=True)
    optimizer.step()
    optimizer.zero_grad()
    history.append(loss)
