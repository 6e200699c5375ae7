"""Many heads, each with a loss of its own; all are added up before one backward pass."""
import torch
from torch import nn
body = nn.Conv2d(3, 16, 3, 1, 1).cuda()
heads = nn.ModuleDict({f"task{i}": nn.Sequential(nn.Conv2d(16, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 1, 1)) for i in range(14)}).cuda()
optimizer = torch.optim.AdamW([*body.parameters(), *heads.parameters()])
for step in range(4):
    features = body(torch.randn(8, 3, 256, 256, device="cuda"))
    losses = {}
    for name, head in heads.items():
        losses[name] = head(features).square().mean()  # named
    sum(losses.values()).backward()
    optimizer.step()
    optimizer.zero_grad()
