"""A residual network in stages, with SGD."""

import sys

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x):
        return F.relu(x + self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))


def stage(before, width):
    return nn.Sequential(nn.Conv2d(before, width, 3, 2, 1), nn.Sequential(*(Block(width) for _ in range(3))))


net = nn.Sequential(stage(3, 64), stage(64, 128), stage(128, 256), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
for _step in range(12):
    images, labels = torch.randn(int(sys.argv[1]), 3, 128, 128).cuda(), torch.randint(10, (int(sys.argv[1]),)).cuda()
    optimizer.zero_grad()
    loss = F.cross_entropy(net(images), labels)
    loss.backward()
    optimizer.step()
