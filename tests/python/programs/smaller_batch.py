"""Halves its batch until one fits, as accelerate's `find_executable_batch_size` does."""

import torch
from torch import nn

net = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8))).cuda()
batch = 40_000
while True:
    failed = False
    try:
        net(torch.randn(batch, 1024, device="cuda")).mean().backward()
    except torch.cuda.OutOfMemoryError:
        failed = True
    if not failed:
        break
    batch //= 2
for _ in range(5):
    net(torch.randn(batch, 1024, device="cuda")).mean().backward()
print("trained with", batch)
