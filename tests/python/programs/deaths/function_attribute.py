"""A table in an attribute of a function, with an entry for each length."""

import torch
from torch import nn

def mask(length):
    if length not in mask.known:
        mask.known[length] = torch.ones(length, length, device="cuda").tril()  # named
    return mask.known[length]
mask.known = {}

net = nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(400):
    length = 500 + step * 13 % 997
    x = torch.randn(length, 64, device="cuda")
    (mask(length) @ net(x)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
