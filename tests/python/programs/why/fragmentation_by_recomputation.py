"""Recomputed blocks whose sizes differ: each leaves its input behind between large temporaries."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, wide: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(512, wide), nn.Linear(wide, 512)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))  # named


blocks = nn.ModuleList(Block(1024 + 512 * i) for i in range(12)).cuda()
optimizer = torch.optim.SGD(blocks.parameters())
for _ in range(4):
    x = torch.randn(4096, 512, device="cuda", requires_grad=True)
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False)
    x.mean().backward()
    optimizer.step()
    optimizer.zero_grad()
