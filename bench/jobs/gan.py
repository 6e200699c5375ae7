"""A GAN whose discriminator steps one to three times for each step of the generator, at a size that is drawn each time.

The discriminator's gradient is penalised every fourth step, which keeps the graph of the backward pass: a peak of its
own.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from training import start, values


class Generator(nn.Module):
    def __init__(self, width: int, levels: int) -> None:
        super().__init__()
        self.enter = nn.Linear(512, width * 16)
        self.levels = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(width, width, 3, padding=1))
            for _ in range(levels)
        )
        self.colours = nn.ModuleList(nn.Conv2d(width, 3, 1) for _ in range(levels))

    def forward(self, noise: Tensor, levels: int) -> Tensor:
        x = self.enter(noise).unflatten(1, (-1, 4, 4))
        for level in self.levels[:levels]:
            x = functional.interpolate(x, scale_factor=2)
            x = functional.leaky_relu(x + level(x), 0.2)
        return self.colours[levels - 1](x).tanh()


class Discriminator(nn.Module):
    def __init__(self, width: int, levels: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, width, 1)
        self.levels = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(width, width, 3, padding=1))
            for _ in range(levels)
        )
        self.leave = nn.Linear(width * 16, 1)

    def forward(self, images: Tensor, levels: int) -> Tensor:
        x = self.enter(images)
        for level in self.levels[:levels]:
            x = functional.avg_pool2d(functional.leaky_relu(x + level(x), 0.2), 2)
        return self.leave(x.flatten(1))


def main() -> None:
    options, draw = start(__doc__, batch=8, width=192, levels=6)
    generator = Generator(options.width, options.levels).cuda()
    discriminator = Discriminator(options.width, options.levels).cuda()
    first = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.0, 0.99))
    second = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.0, 0.99))
    for step in range(options.steps):
        levels = draw.randint(options.levels - 2, options.levels)
        batch = options.batch * draw.randint(1, 2)
        for _ in range(draw.randint(1, 3)):
            real = values(batch, 3, 4 << levels, 4 << levels, dtype=torch.float32).requires_grad_(step % 4 == 0)
            with torch.no_grad():
                made = generator(torch.randn(batch, 512, device="cuda"), levels)
            believed, doubted = discriminator(real, levels), discriminator(made, levels)
            loss = functional.softplus(-believed).mean() + functional.softplus(doubted).mean()
            if step % 4 == 0:
                (slope,) = torch.autograd.grad(believed.sum(), real, create_graph=True)
                loss = loss + slope.square().sum((1, 2, 3)).mean()
            loss.backward()
            second.step()
            second.zero_grad()
        loss = functional.softplus(-discriminator(generator(torch.randn(batch, 512, device="cuda"), levels), levels)).mean()
        loss.backward()
        first.step()
        first.zero_grad()
        second.zero_grad()
        print(f"step {step}: {4 << levels} pixels, batch {batch}")


if __name__ == "__main__":
    main()
