"""Training fits; an evaluation takes all windows of a large picture as one batch, without autograd."""
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + self.second(self.first(x).relu())

net = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), *(Block(32) for _ in range(3))).cuda()
optimizer = torch.optim.Adam(net.parameters())
for _ in range(6):
    net(torch.randn(4, 3, 64, 64, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
net.eval()
with torch.no_grad():
    picture = torch.randn(3, 1024, 1024, device="cuda")
    windows = picture.unfold(1, 128, 64).unfold(2, 128, 64).permute(1, 2, 0, 3, 4).flatten(0, 1)
    net(windows[:128])  # named
