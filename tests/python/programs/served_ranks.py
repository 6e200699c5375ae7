"""One rank of a job that a launcher starts: each rank has another model, on the GPU of its local rank."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

import stalloc

rank, world_size, device = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=world_size)
torch.cuda.set_device(device)
model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(4 + 3 * rank)]).cuda()
for _ in range(6):
    with stalloc.step():
        model(torch.randn(32, 256, device="cuda")).sum().backward()
        with torch.no_grad():  # an optimizer would import a compiler, which takes as long as all the rest
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
    dist.barrier()
dist.destroy_process_group()
