"""A model that was loaded in evaluation mode is trained as it is; its batches become larger after some steps."""
import torch
from torch import nn
net = nn.Sequential(*(m for _ in range(8) for m in (nn.Linear(1024, 1024), nn.GELU(), nn.Dropout(0.1)))).cuda().eval()
optimizer = torch.optim.AdamW(net.parameters())
for rows in [512, 512, 512, 512, 512, 512, 20000, 20000]:
    net(torch.randn(rows, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
