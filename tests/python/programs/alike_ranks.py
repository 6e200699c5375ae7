"""One of the alike ranks of a data-parallel job, as torchrun starts them."""

import os

import torch
import torch.distributed as dist
from torch import nn

import stalloc

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
# Compares its parameters with those of the other ranks.
wrapped = nn.parallel.DistributedDataParallel(nn.Linear(64, 64).cuda())
model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(8)]).cuda()
for _ in range(6):
    with stalloc.step():
        model(torch.randn(64, 512, device="cuda")).sum().backward()
        with torch.no_grad():  # an optimizer would import a compiler, which takes as long as all the rest
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
dist.destroy_process_group()
