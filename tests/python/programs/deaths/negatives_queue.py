"""Contrastive learning whose queue of negatives is never cut."""

import torch
from torch import nn
from torch.nn import functional


class Contrast(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(1024, 1024)
        self.register_buffer("negatives", torch.zeros(0, 1024))

    def forward(self, x):
        query, key = self.encoder(x), self.encoder(x + 0.1).detach()
        logits = query @ torch.cat([key, self.negatives]).T
        self.negatives = torch.cat([self.negatives, key])  # named
        return functional.cross_entropy(logits, torch.arange(len(x), device=x.device))


model = Contrast().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2000):
    optimizer.zero_grad()
    model(torch.randn(1024, 1024, device="cuda")).backward()
    optimizer.step()
