"""After some epochs the backbone is trained too: its gradients and the optimizer's states for it come on top."""
import torch
from torch import nn

backbone = nn.Sequential(*(nn.Linear(2560, 2560) for _ in range(8))).cuda().requires_grad_(False)
head = nn.Linear(2560, 100).cuda()
optimizer = torch.optim.AdamW([*backbone.parameters(), *head.parameters()])
for epoch in range(4):
    if epoch == 2:
        backbone.requires_grad_(True)
    for _ in range(5):
        head(backbone(torch.randn(256, 2560, device="cuda"))).square().mean().backward()
        optimizer.step()  # named
        optimizer.zero_grad()
