"""Marks its steps, phases and modules itself, on two kinds of steps."""

import torch
from torch import nn

import stalloc

model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 4)).cuda()
optimizer = torch.optim.SGD(model.parameters())
stalloc.watch(model)


@stalloc.step()
def step():
    torch.empty(12345, dtype=torch.uint8, device="cuda")
    with stalloc.phase("forward", 0):
        loss = model(torch.ones(8, 16, device="cuda")).sum()
    stalloc.phase("backward", 0)
    loss.backward()
    optimizer.step()


step()
step()
with stalloc.step():
    step.__wrapped__()
