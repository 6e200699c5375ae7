"""Another process has most of the GPU. A stand-in GPU has one process alone: this one takes the memory, and answers as NVML would."""

import ctypes

import torch
from torch import nn

from stalloc._out_of_memory import facts

facts.processes = lambda torch, device: [{"pid": 4711, "name": "python serve.py", "bytes": 560 << 20}]
net = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
cuda = ctypes.CDLL(None)
assert cuda.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(560 << 20)) == 0
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(4):
    net(torch.randn(8192, 1024, device="cuda")).square().mean().backward()  # named
    optimizer.step()
    optimizer.zero_grad()
