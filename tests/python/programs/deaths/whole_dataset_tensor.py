"""The whole data set is one tensor on the GPU."""
import torch
from torch import nn
data = torch.empty(150_000, 1024).to("cuda")  # named
net = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(5):
    net(data[step * 4096 : (step + 1) * 4096]).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
