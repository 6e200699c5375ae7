"""accelerate looks for the batch that fits; with an argument none does."""

import sys

import torch
from accelerate.utils import find_executable_batch_size
from torch import nn

net = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8))).cuda()
rows = 40_000_000 if len(sys.argv) > 1 else 512


@find_executable_batch_size(starting_batch_size=64)
def train(batch_size: int) -> int:
    for _ in range(5):
        net(torch.randn(batch_size * rows, 1024, device="cuda")).mean().backward()
        net.zero_grad()
    return batch_size


print("trained with", train())
