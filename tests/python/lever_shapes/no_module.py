"""No module at all: tensors in a dictionary, and functions of them."""

import torch
from nets import values
from torch.nn import functional as F

torch.manual_seed(0)
sizes = {"widen": (8, 32), "narrow": (32, 8), "head": (8, 3)}
weights = {name: (torch.randn(size) / 4).requires_grad_() for name, size in sizes.items()}


def net(w, x):
    return (x + F.gelu(x @ w["widen"]) @ w["narrow"]) @ w["head"]


optimizer = torch.optim.AdamW(weights.values(), lr=1e-2)
losses = []
for step in range(5):
    loss = F.cross_entropy(net(weights, torch.randn(6, 8)), torch.randint(3, (6,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
RESULT = values(losses, *weights.values(), optimizer)
