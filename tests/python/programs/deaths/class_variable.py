"""A table of a class, shared by all of its objects, gets an entry for each length."""

import torch
from torch import nn

class Rotary(nn.Module):
    tables = {}
    def __init__(self, d):
        super().__init__()
        self.d = d
    def forward(self, x):
        n = x.shape[1]
        key = (n, x.device)
        if key not in Rotary.tables:
            Rotary.tables[key] = torch.randn(n, n, device=x.device)  # named
        return x + Rotary.tables[key].mean()

def main():
    net = nn.Sequential(nn.Linear(128, 128), Rotary(128), nn.Linear(128, 128)).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    for step in range(400):
        x = torch.randn(2, 1000 + step * 7 % 1009, 128, device="cuda")
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

main()
