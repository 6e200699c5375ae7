"""Weights, gradients and activations nearly fill the GPU; AdamW's states, made in the first step, never come to be."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2048, 2048, device="cuda") for _ in range(20))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))  # named
        return x


model = Model()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    short = model(torch.randn(300, 2048, device="cuda")).mean()
    long = model(torch.randn(1100, 2048, device="cuda")).mean()
    (short + long).backward()
    optimizer.step()
    optimizer.zero_grad()
