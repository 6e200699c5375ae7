"""A generator and a discriminator, an optimizer for each."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH, NOISE, WIDTH, STEPS = 128, 128, 64, 12


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(NOISE, 8 * WIDTH * 8 * 8)
        widths = (8 * WIDTH, 4 * WIDTH, 2 * WIDTH, WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU()) for a, b in zip(widths, widths[1:])
        )
        self.leave = nn.Conv2d(WIDTH, 3, 3, padding=1)

    def forward(self, z):
        x = self.enter(z).view(-1, 8 * WIDTH, 8, 8)
        for block in self.blocks:
            x = block(x)
        return self.leave(x).tanh()


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        widths = (3, WIDTH, 2 * WIDTH, 4 * WIDTH, 8 * WIDTH)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Conv2d(a, b, 4, 2, 1)), nn.LeakyReLU(0.2)) for a, b in zip(widths, widths[1:])
        )
        self.leave = nn.Linear(8 * WIDTH * 4 * 4, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.leave(x.flatten(1))


G, D = Generator().cuda(), Discriminator().cuda()
opt_g = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
for _step in range(STEPS):
    real = torch.randn(BATCH, 3, 64, 64).cuda()
    fake = G(torch.randn(BATCH, NOISE, device="cuda"))
    d_loss = F.relu(1 - D(real)).mean() + F.relu(1 + D(fake.detach())).mean()
    opt_d.zero_grad()
    d_loss.backward()
    opt_d.step()
    g_loss = -D(fake).mean()
    opt_g.zero_grad()
    g_loss.backward()
    opt_g.step()
