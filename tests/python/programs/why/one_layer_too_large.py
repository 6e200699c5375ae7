"""A vocabulary so large that the output layer does not fit with the rest."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(*(nn.Linear(1024, 1024, device="cuda") for _ in range(8)))
        self.head = nn.Linear(1024, 256_000, device="cuda")  # named

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


model = Model()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    model(torch.randn(64, 1024, device="cuda")).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
