"""A job resumes its optimizer, builds it anew for other groups of parameters and resumes that one too: the schedule keeps the first."""
import os
import tempfile
import torch
from torch import nn

def build():
    return nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(6)))

def save(path):
    model = build()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 2048)).sum().backward()
    optimizer.step()
    torch.save(optimizer.state_dict(), path)

def resume(parameters):
    optimizer = torch.optim.AdamW(parameters)
    optimizer.load_state_dict(torch.load(path, map_location="cuda"))  # named
    return optimizer

path = os.path.join(tempfile.mkdtemp(), "optimizer.pt")
save(path)
model = build().cuda()
optimizer = resume(model.parameters())
schedule = torch.optim.lr_scheduler.LinearLR(optimizer)
optimizer = resume([*model.parameters()])
for _ in range(4):
    model(torch.randn(6144, 2048, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    schedule.step()
