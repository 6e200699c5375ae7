"""Two models and two optimizers; the generator's backward pass goes through the discriminator."""

import torch
from nets import values
from torch import nn

torch.manual_seed(0)


def net(inner, outer):
    return nn.Sequential(nn.Linear(8, inner), nn.Sequential(*(nn.Sequential(nn.Linear(inner, inner), nn.Tanh()) for _ in range(3))), nn.Linear(inner, outer))


netG, netD = net(8, 8), net(8, 1)
optimizerD, optimizerG = torch.optim.Adam(netD.parameters(), lr=1e-2), torch.optim.Adam(netG.parameters(), lr=1e-2)
bce, losses = nn.BCEWithLogitsLoss(), []
for step in range(4):
    real, fake = torch.randn(4, 8), netG(torch.randn(4, 8))
    optimizerD.zero_grad()
    d = bce(netD(real), torch.ones(4, 1)) + bce(netD(fake.detach()), torch.zeros(4, 1))
    d.backward()
    optimizerD.step()
    optimizerG.zero_grad()
    g = bce(netD(fake), torch.ones(4, 1))
    g.backward()
    optimizerG.step()
    losses += [d.item(), g.item()]
RESULT = values(losses, netG, netD, optimizerG, optimizerD)
