"""A program that allows itself three tenths of the GPU, and needs more."""

import torch
from torch import nn

torch.cuda.set_per_process_memory_fraction(0.3)

def main():
    net = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(16))).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(4):
        x = torch.randn(6000, 1024, device="cuda")
        net(x).mean().backward()  # named
        optimizer.step()
        optimizer.zero_grad()

main()
