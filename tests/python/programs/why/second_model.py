"""A distillation whose teacher stays on the GPU with the student and its optimizer."""

import torch
from torch import nn


def network(width: int, depth: int) -> nn.Module:
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)))


student = network(1024, 8).cuda()
teacher = network(3072, 16).cuda().eval()  # named
adapt = nn.Linear(1024, 3072).cuda()
optimizer = torch.optim.AdamW([*student.parameters(), *adapt.parameters()])
for _ in range(4):
    x = torch.randn(4096, 1024, device="cuda")
    with torch.no_grad():
        wanted = teacher(adapt(x))
    nn.functional.mse_loss(adapt(student(x)), wanted).backward()
    optimizer.step()
    optimizer.zero_grad()
