"""Four jobs, each on a GPU of its own: one sums its losses and keeps the graphs, one is healthy, one has lengths that vary and an
optimizer whose states come late, and one fills a cache and then stops."""

import random

import torch
from torch import nn

import stalloc

STEPS = 60


class Job:
    def __init__(self, device: int) -> None:
        self.device = torch.device("cuda", device)
        self.net = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).to(self.device)
        self.optimizer = torch.optim.AdamW(self.net.parameters())
        self.total = torch.zeros((), device=self.device)
        self.cache: dict[int, torch.Tensor] = {}
        self.draw = random.Random(0)

    def train(self, rows: int, steps: bool = True) -> None:
        x = torch.randn(rows, 256).to(self.device)
        loss = (self.net(x) - x).square().mean()
        loss.backward()
        if steps:
            self.optimizer.step()
        self.optimizer.zero_grad()


leaks, healthy, varies, fills = (Job(device) for device in range(4))
for step in range(STEPS):
    with stalloc.step():
        leaks.train(512)
        x = torch.randn(512, 256).to(leaks.device)
        leaks.total = leaks.total + leaks.net(x).square().mean()  # leaks
        healthy.train(512)
        varies.train(varies.draw.randint(64, 1024), steps=step >= 30)
        if len(fills.cache) < 15:
            fills.cache[step] = torch.empty(512, 256, device=fills.device)
        fills.train(512)
