"""Tables of positions, one for each length, in a cache without limit."""

import functools
import random

import torch
from torch import nn


@functools.lru_cache(maxsize=None)
def tables(length, width):
    angles = torch.arange(length, device="cuda").outer(torch.arange(width, device="cuda") / width)
    return angles.cos(), angles.sin()  # named


layer = nn.Linear(512, 512).cuda()
chance = random.Random(1)
for step in range(5000):
    length = chance.randint(256, 2048)
    cos, sin = tables(length, 512)
    x = torch.randn(length, 512, device="cuda")
    loss = layer(x * cos + x.roll(1, -1) * sin).mean()
    loss.backward()
    layer.zero_grad()
