"""Two models and two optimizers; parametrizations call parts of the second before any optimizer is made, and each call changes their buffers."""

import torch
from nets import values
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

torch.manual_seed(0)


def net(outer, of=lambda layer: layer):
    return nn.Sequential(*(nn.Sequential(of(nn.Linear(8, 8)), nn.Tanh()) for _ in range(4)), nn.Linear(8, outer))


netG, netD = net(8), net(1, spectral_norm)
optimizerG, optimizerD = torch.optim.Adam(netG.parameters(), lr=1e-2), torch.optim.Adam(netD.parameters(), lr=1e-2)
losses = []
for _step in range(4):
    real, fake = torch.randn(4, 8), netG(torch.randn(4, 8))
    d = (1 - netD(real)).relu().mean() + (1 + netD(fake.detach())).relu().mean()
    optimizerD.zero_grad()
    d.backward()
    optimizerD.step()
    g = -netD(fake).mean()
    optimizerG.zero_grad()
    g.backward()
    optimizerG.step()
    losses += [d.item(), g.item()]
RESULT = values(losses, netG, netD, optimizerG, optimizerD)
