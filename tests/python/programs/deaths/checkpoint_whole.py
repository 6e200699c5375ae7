"""All blocks are in one checkpoint: the backward pass makes all activations again, at once."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
body = nn.Sequential(*(m for _ in range(16) for m in (nn.Linear(1024, 1024), nn.GELU()))).cuda()
optimizer = torch.optim.AdamW(body.parameters())
for step in range(4):
    x = torch.randn(8192, 1024, device="cuda", requires_grad=True)
    checkpoint(body, x, use_reentrant=False).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
