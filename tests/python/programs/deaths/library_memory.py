"""A library takes memory from CUDA itself, out of PyTorch's sight."""

import ctypes

import torch
from torch import nn

net = nn.Linear(1024, 1024).cuda()
cuda = ctypes.CDLL(None)
place = ctypes.c_void_p()
assert cuda.cudaMalloc(ctypes.byref(place), ctypes.c_size_t(560 << 20)) == 0
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(4):
    net(torch.randn(32_000, 1024, device="cuda")).square().mean().backward()  # named
    optimizer.step()
    optimizer.zero_grad()
