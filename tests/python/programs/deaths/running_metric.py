"""A metric of a class that adds up losses with their graphs."""

import torch
from torch import nn


class Mean:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value):
        self.total = self.total + value
        self.count += 1

    def compute(self):
        return self.total / self.count


def train(model, optimizer, metric):
    for step in range(2000):
        x = torch.randn(1024, 1024, device="cuda")
        loss = model(x).square().mean()  # named
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
        metric.update(loss)


model = nn.Sequential(nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 1024)).cuda()
train(model, torch.optim.SGD(model.parameters(), lr=1e-3), Mean())
