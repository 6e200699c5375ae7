"""Layers in lists and dictionaries of Python's, called one by one; a teacher that is not trained, an encoder called twice for one loss."""

import torch
from nets import values
from torch import nn


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 8))

    def forward(self, x):
        return x + self.inner(x)


def main():
    torch.manual_seed(0)
    layers = [Mixer() for _ in range(4)]
    heads = {"mean": nn.Linear(8, 3), "all": nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))}
    teacher = nn.Sequential(*(Mixer() for _ in range(2)), nn.Linear(8, 3)).eval()
    parts = [*layers, *heads.values()]
    optimizer = torch.optim.SGD([p for part in parts for p in part.parameters()], lr=0.05, momentum=0.9)
    losses = []
    for step in range(6):
        total = 0
        for view in torch.randn(2, 5, 8):
            x = view
            for layer in layers:
                x = layer(x)
            with torch.no_grad():
                wanted = teacher(view)
            total = total + (heads["mean"](x.mean(0)) + heads["all"](x) - wanted).square().mean()
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        losses.append(total.item())
    return values(losses, *parts, optimizer)


if __name__ == "__main__":
    RESULT = main()
