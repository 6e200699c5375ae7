"""An evaluation without torch.no_grad(): each batch's predictions keep its graph."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 64)).cuda().eval()
predictions = []
for _ in range(400):
    batch = torch.randn(512, 1024, device="cuda")
    predictions.append(net(batch))  # named
scores = torch.cat(predictions)
