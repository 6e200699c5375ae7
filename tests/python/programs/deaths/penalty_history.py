"""A critic's gradient penalty is kept for a plot, with its double graph."""
import torch
from torch import nn
critic = nn.Sequential(nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 1)).cuda()
optimizer = torch.optim.Adam(critic.parameters())
penalties = []
for _ in range(400):
    x = torch.randn(512, 1024, device="cuda", requires_grad=True)  # named
    score = critic(x)
    (slope,) = torch.autograd.grad(score.sum(), x, create_graph=True)
    penalty = (slope.norm(dim=1) - 1).square().mean()
    penalties.append(penalty)
    optimizer.zero_grad()
    (score.mean() + penalty).backward()
    optimizer.step()
