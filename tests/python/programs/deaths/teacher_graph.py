"""A teacher that runs with autograd, though no optimizer has its parameters."""

import torch
from torch import nn

def blocks(count):
    return nn.Sequential(*(nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(count)))

teacher = blocks(12).cuda()
student = blocks(2).cuda()
optimizer = torch.optim.AdamW(student.parameters())
for step in range(20):
    x = torch.randn(4096, 512, device="cuda")
    target = teacher(x)  # named
    loss = nn.functional.mse_loss(student(x), target)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
