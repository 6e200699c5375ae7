"""DistributedDataParallel keeps each gradient twice: once for itself, once in a bucket."""

import os

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29777")
torch.distributed.init_process_group("nccl", store=torch.distributed.HashStore(), rank=0, world_size=1)
model = nn.Sequential(*(nn.Linear(4096, 4096, device="cuda") for _ in range(4)))
wrapped = DistributedDataParallel(model)  # named
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    wrapped(torch.randn(8, 4096, device="cuda")).mean().backward()
    optimizer.step()
