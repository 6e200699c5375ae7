"""An optimizer for each phase; the schedules of earlier ones are kept."""

import torch
from torch import nn

model = nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048)).cuda()
schedules = []
for phase in range(40):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3 / (phase + 1))
    schedules.append(torch.optim.lr_scheduler.LinearLR(optimizer))
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        model(torch.randn(32, 2048, device="cuda")).sum().backward()
        optimizer.step()  # named
        schedules[-1].step()
