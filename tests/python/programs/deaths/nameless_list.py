"""The scores of an evaluation wait on the GPU in a list that no variable has: a comprehension, in the call that needs it."""
import torch
from torch import nn

net = nn.Linear(256, 4096).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(5):
    net(torch.randn(512, 256, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
with torch.no_grad():
    scores = torch.cat([net(torch.randn(512, 256, device="cuda")) for _ in range(120)])  # named
