"""Trains with PyTorch's anomaly mode on, which writes down for what line of the forward pass a backward pass asks.

    forward_lines.py SNAPSHOT
"""

import sys

import torch
from torch import nn

if sys.argv[1] != "none":
    torch.cuda.memory._record_memory_history()
torch.autograd.set_detect_anomaly(True, check_nan=False)
weight = nn.Parameter(torch.randn(1024, 1024, device="cuda"))
for _ in range(2):
    x = torch.randn(2048, 1024, device="cuda")
    wide = (x @ weight).repeat(1, 8)  # forward: its gradient is the widest
    loss = wide.square().mean()  # square
    loss.backward()
if sys.argv[1] != "none":
    torch.cuda.memory._dump_snapshot(sys.argv[1])
