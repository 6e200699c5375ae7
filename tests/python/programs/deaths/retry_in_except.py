"""A smaller batch is tried inside of the `except`, where the traceback still holds the failed one."""

import torch
from torch import nn

net = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(12))).cuda()


def forward(batch: int) -> torch.Tensor:
    x = torch.randn(batch, 1024, device="cuda")
    kept = []
    for layer in net:
        x = torch.relu(layer(x))  # named
        kept.append(x)
    return torch.stack(kept).mean()


for batch in (10_000, 8_000):
    try:
        forward(batch).backward()
    except torch.cuda.OutOfMemoryError:
        forward(batch * 3 // 4).backward()
