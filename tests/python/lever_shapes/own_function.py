"""Blocks that widen as far as logits do, and hand what they made to a function with a backward pass of its own."""

import torch
from nets import WIDTH, Text, batch, text_loss, values
from torch import nn


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x + x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, gradient):
        x, scale = ctx.saved_tensors
        return gradient * scale, (gradient * x).sum((0, 1))


class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.widen, self.narrow, self.scale = nn.Linear(WIDTH, 1024), nn.Linear(1024, WIDTH), nn.Parameter(torch.ones(1024))

    def forward(self, x):
        return x + self.narrow(Twice.apply(self.widen(x)) + Scaled.apply(self.widen(x), self.scale))


torch.manual_seed(0)
net = Text(Wide, layers=2)
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
losses = []
for step in range(4):
    x, y = batch(step)
    loss = text_loss(net(x), y)
    loss.backward()
    opt.step()
    opt.zero_grad()
    losses.append(loss.item())
RESULT = values(losses, net, opt)
