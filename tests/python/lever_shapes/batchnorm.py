"""Convolutions with running figures."""

import torch
from nets import values
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    def __init__(self, stride=1):
        super().__init__()
        self.first, self.norm1 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.second, self.norm2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)

    def forward(self, x):
        return F.relu(x + self.norm2(self.second(F.relu(self.norm1(self.first(x))))))


def main():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Sequential(*(Residual() for _ in range(3))), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)
    losses = []
    for step in range(4):
        torch.manual_seed(step)
        x, y = torch.randn(4, 3, 8, 8), torch.randint(10, (4,))
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        losses.append(model(x).sum().item())
    return values(losses, model, optimizer)


if __name__ == "__main__":
    RESULT = main()
