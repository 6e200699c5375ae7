"""A normalisation written by hand keeps a running variance, with the graph of each batch."""
import torch
from torch import nn

class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("running", torch.ones(width))

    def forward(self, x):
        variance = x.var(0)
        self.running = 0.9 * self.running + 0.1 * variance
        return x / (x.detach().var(0) + 1e-5).sqrt()

net = nn.Sequential(nn.Linear(512, 2048), Norm(2048), nn.ReLU(), nn.Linear(2048, 10)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(500):
    net(torch.randn(512, 512, device="cuda")).square().mean().backward()  # named
    optimizer.step()
    optimizer.zero_grad()
