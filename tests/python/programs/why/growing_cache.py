"""A cache of masks by length in a training loop: most lengths are new, and nothing is ever thrown out."""

import torch
from torch import nn

masks: dict[int, torch.Tensor] = {}


def mask(length: int) -> torch.Tensor:
    if length not in masks:
        masks[length] = torch.ones(12, length, length, device="cuda")  # named
    return masks[length]


net = nn.Linear(256, 256).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(400):
    length = 640 + 2 * (step * 89 % 211)
    x = torch.randn(12, length, 256, device="cuda")
    scores = x @ net(x).transpose(1, 2) * mask(length)
    scores.mean().backward()
    optimizer.step()
    optimizer.zero_grad()
