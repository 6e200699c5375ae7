"""All ranks of a job work on GPU 0. A stand-in GPU has one process alone: this one takes their memory, and answers as NVML would."""
import ctypes
import os

import torch
from torch import nn

from stalloc._out_of_memory import facts

os.environ.update(WORLD_SIZE="4", LOCAL_RANK="0")
facts.processes = lambda torch, device: [{"pid": 5001 + rank, "name": " ".join(facts.command().split()[:3]), "bytes": 180 << 20} for rank in range(3)]
net = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
cuda = ctypes.CDLL(None)
assert cuda.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(540 << 20)) == 0
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(4):
    net(torch.randn(8192, 1024, device="cuda")).square().mean().backward()  # named
    optimizer.step()
    optimizer.zero_grad()
