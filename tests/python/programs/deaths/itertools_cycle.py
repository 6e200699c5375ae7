"""itertools.cycle keeps a copy of each batch of the first epoch."""
import itertools
import torch
from torch import nn

def batches():
    for _ in range(500):
        yield torch.empty(1024, 1024).to("cuda")  # named

net = nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step, batch in enumerate(itertools.cycle(batches())):
    net(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 1000:
        break
