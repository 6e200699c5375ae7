"""One row of each batch is kept: a view, which keeps the whole batch."""

import torch
from torch import nn

@torch.no_grad()
def extract(net, batches):
    features = []
    for _ in range(batches):
        hidden = net(torch.randn(16, 196, 512, device="cuda"))  # named
        features.append(hidden[:, 0])
    return torch.cat(features)

extract(nn.Sequential(nn.Linear(512, 1024), nn.GELU()).cuda().eval(), 400)
