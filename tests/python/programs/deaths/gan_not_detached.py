"""The critic's loss goes back through the generator too."""
import torch
from torch import nn
make = lambda: nn.Sequential(*(m for _ in range(8) for m in (nn.Linear(1024, 1024), nn.LeakyReLU())))
generator, critic = make().cuda(), make().cuda()
first, second = torch.optim.Adam(generator.parameters()), torch.optim.Adam(critic.parameters())
for _ in range(3):
    noise = torch.randn(5000, 1024, device="cuda")
    fake = generator(noise)
    loss = critic(fake).mean() - critic(torch.randn(5000, 1024, device="cuda")).mean()  # named
    loss.backward()
    second.step()
    second.zero_grad()
    critic(generator(noise)).mean().backward()
    first.step()
    first.zero_grad()
