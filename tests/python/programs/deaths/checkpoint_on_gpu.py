"""A checkpoint that was loaded to the GPU stays there while the program trains."""

import tempfile
import os
import torch
from torch import nn

def build():
    return nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(10)))

def save(path):
    model = build()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 2048)).sum().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)

def resume(path):
    checkpoint = torch.load(path, map_location="cuda")  # named
    model = build().cuda()
    model.load_state_dict(checkpoint["model"])
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        model(torch.randn(64, 2048, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

path = os.path.join(tempfile.mkdtemp(), "c.pt")
save(path)
resume(path)
