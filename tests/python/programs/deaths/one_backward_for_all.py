"""Accumulates losses of micro-batches, and goes back through all of them at once."""

import torch
from torch import nn

net = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.ReLU()))).cuda()
optimizer = torch.optim.AdamW(net.parameters())


def micro_batches(count):
    for _ in range(count):
        yield torch.randn(1024, 1024, device="cuda")


for accumulation in (4, 4, 4, 4, 64):
    total = torch.zeros((), device="cuda")
    for batch in micro_batches(accumulation):
        total = total + net(batch).float().pow(2).mean() / accumulation  # named
    total.backward()
    optimizer.step()
    optimizer.zero_grad()
