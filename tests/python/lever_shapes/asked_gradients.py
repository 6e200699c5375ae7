"""Functions of a dictionary of tensors; gradients come from autograd.grad and are handed to the optimizer."""

import torch
from nets import CLASSES, WIDTH, batch, text_loss, values
from torch.nn import functional as F

torch.manual_seed(0)
weights = {name: (torch.randn(*shape) * 0.1).requires_grad_() for name, shape in {"tokens": (CLASSES, WIDTH), "inner": (WIDTH, WIDTH), "head": (CLASSES, WIDTH)}.items()}
optimizer = torch.optim.AdamW(weights.values(), lr=1e-2)
losses = []
for step in range(4):
    x, y = batch(step)
    loss = text_loss(F.linear(F.linear(F.embedding(x, weights["tokens"]), weights["inner"]).tanh(), weights["head"]), y)
    for weight, gradient in zip(weights.values(), torch.autograd.grad(loss, [*weights.values()])):
        weight.grad = gradient
    optimizer.step()
    losses.append(loss.item())
RESULT = values(losses, optimizer, *weights.values())
