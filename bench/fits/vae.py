"""A convolutional VAE of images of 128 pixels."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH, LATENT, STEPS = 64, 256, 12
WIDTHS = (32, 64, 128, 256, 512)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, width), nn.Conv2d(width, width, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, width), nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x))))))


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        down = [nn.Sequential(nn.Conv2d(a, b, 4, 2, 1), Residual(b)) for a, b in zip((3, *WIDTHS), WIDTHS)]
        up = [nn.Sequential(Residual(b), nn.ConvTranspose2d(b, a, 4, 2, 1)) for a, b in zip((3, *WIDTHS), WIDTHS)]
        self.encoder, self.decoder = nn.Sequential(*down), nn.Sequential(*reversed(up))
        self.mean, self.logvar = nn.Linear(512 * 16, LATENT), nn.Linear(512 * 16, LATENT)
        self.enter = nn.Linear(LATENT, 512 * 16)

    def forward(self, x):
        hidden = self.encoder(x).flatten(1)
        mean, logvar = self.mean(hidden), self.logvar(hidden)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        return self.decoder(self.enter(z).view(-1, 512, 4, 4)), mean, logvar


def main():
    model = VAE().cuda()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4)
    for step in range(STEPS):
        x = torch.rand(BATCH, 3, 128, 128).cuda()
        again, mean, logvar = model(x)
        kl = -0.5 * (1 + logvar - mean.square() - logvar.exp()).sum(1).mean()
        loss = F.mse_loss(again, x, reduction="sum") / BATCH + kl
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            print(f"step {step}: {loss.item():.1f}")


main()
