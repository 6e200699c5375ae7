"""A program that settles: every step is as the one before, until outputs are kept."""

import torch
from torch import nn

import stalloc

net = nn.Linear(256, 256).cuda()
kept = []
for step in range(24):
    with stalloc.step():
        x = torch.randn(512, 256, device="cuda")
        y = net(x)
        if step >= 15:
            kept.append(y.detach().clone())  # kept
    if step in (5, 14, 20):
        print(f"step {step}: history {'on' if torch._C._cuda_isHistoryEnabled() else 'off'}")
