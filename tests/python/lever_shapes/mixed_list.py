"""Blocks among other layers in one Sequential, classes that alternate, blocks that are attributes; buffers that a forward pass changes."""

import torch
from nets import values
from torch import nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Sequential(nn.BatchNorm1d(width), nn.Linear(width, width), nn.SiLU(), nn.Dropout(0.1), nn.Linear(width, width))

    def forward(self, x):
        return x + self.inner(x)


class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate = nn.Sequential(nn.Linear(width, width), nn.Sigmoid())

    def forward(self, x):
        return x * self.gate(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(Residual(16), nn.Linear(16, 8), Residual(8), nn.ReLU())
        self.middle = nn.ModuleList([Residual(8), Gate(8), Residual(8), Gate(8)])
        self.first, self.last = Residual(8), Residual(8)
        self.up = nn.Linear(8, 16)

    def forward(self, x):
        x = self.down(x)
        for block in self.middle:
            x = block(x)
        return self.up(self.last(self.first(x)))


def main():
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for step in range(5):
        x = torch.randn(6, 16)
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return values(losses, model, optimizer)


if __name__ == "__main__":
    RESULT = main()
