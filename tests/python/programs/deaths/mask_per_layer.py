"""Each layer has a causal mask of its own, for the longest text that there may be: masks are larger than weights."""
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, width=256, longest=4096):
        super().__init__()
        self.mix = nn.Linear(width, 3 * width)
        self.register_buffer("mask", torch.ones(longest, longest).tril().log())

    def forward(self, x):
        query, key, value = self.mix(x).chunk(3, -1)
        scores = query @ key.transpose(1, 2) + self.mask[: x.shape[1], : x.shape[1]]
        return x + scores.softmax(-1) @ value

net = nn.Sequential(*(Attention() for _ in range(10))).cuda()  # named
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(3):
    net(torch.randn(6, 1024, 256, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
