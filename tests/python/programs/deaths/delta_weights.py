"""Weights with a low-rank delta, each added up anew in the forward pass: what autograd keeps of it no batch makes smaller."""
import torch
from torch import nn

class Delta(nn.Module):
    def __init__(self, width, rank=8):
        super().__init__()
        self.base = nn.Parameter(torch.randn(width, width), requires_grad=False)
        self.a, self.b = nn.Parameter(torch.randn(rank, width)), nn.Parameter(torch.zeros(width, rank))

    def forward(self, x):
        return nn.functional.linear(x, self.base + self.b @ self.a).relu()  # named

net = nn.Sequential(*(Delta(2560) for _ in range(18))).cuda()
optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad])
for _ in range(3):
    loss = net(torch.randn(16, 2560, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
