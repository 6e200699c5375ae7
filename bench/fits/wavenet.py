"""A WaveNet: dilated convolutions of raw sound, gates and skips."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH, LENGTH, WIDTH, STEPS = 8, 16_000, 64, 12


class Residual(nn.Module):
    def __init__(self, dilation):
        super().__init__()
        self.dilation = dilation
        self.conv = nn.Conv1d(WIDTH, 2 * WIDTH, 2, dilation=dilation)
        self.out, self.skip = nn.Conv1d(WIDTH, WIDTH, 1), nn.Conv1d(WIDTH, 2 * WIDTH, 1)

    def forward(self, x):
        filter, gate = self.conv(F.pad(x, (self.dilation, 0))).chunk(2, dim=1)
        hidden = torch.tanh(filter) * torch.sigmoid(gate)
        return x + self.out(hidden), self.skip(hidden)


class WaveNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(256, WIDTH)
        self.blocks = nn.ModuleList(Residual(2**layer) for _ in range(2) for layer in range(10))
        self.head = nn.Sequential(nn.ReLU(), nn.Conv1d(2 * WIDTH, 256, 1), nn.ReLU(), nn.Conv1d(256, 256, 1))

    def forward(self, x):
        x, skips = self.embed(x).transpose(1, 2), 0
        for block in self.blocks:
            x, skip = block(x)
            skips = skips + skip
        return self.head(skips)


model = WaveNet().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _step in range(STEPS):
    sound = torch.randint(256, (BATCH, LENGTH + 1)).cuda()
    loss = F.cross_entropy(model(sound[:, :-1]), sound[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
