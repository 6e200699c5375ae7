"""Gradients are clipped by hand; a recurrence of its own saves parts of a tensor that lie apart."""

import torch
from nets import WIDTH, Text, batch, text_loss, values
from torch import nn
from torch.nn import functional as F


class Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, decay):
        states = [x[:, 0]]
        for at in range(1, x.shape[1]):
            states.append(decay[:, at] * states[-1] + x[:, at])
        ctx.save_for_backward(decay, torch.stack(states, 1))
        return torch.stack(states, 1)

    @staticmethod
    def backward(ctx, grad):
        decay, states = ctx.saved_tensors
        of_x, of_decay, running = torch.empty_like(grad), torch.zeros_like(decay), torch.zeros_like(grad[:, 0])
        for at in reversed(range(grad.shape[1])):
            running = running + grad[:, at]
            of_x[:, at] = running
            if at:
                of_decay[:, at] = running * states[:, at - 1]
            running = running * decay[:, at]
        return of_x, of_decay


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.widen, self.narrow = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.near = nn.Conv1d(2 * WIDTH, 2 * WIDTH, 3, groups=2 * WIDTH, padding=2)

    def forward(self, x):
        inner, gate = self.widen(self.norm(x)).chunk(2, -1)
        inner = F.silu(self.near(inner.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        return x + self.narrow(Scan.apply(inner, torch.sigmoid(gate)) * F.silu(gate))


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Text(Mixer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(4):
        x, y = batch(step)
        loss = text_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        most = sum(g.square().sum() for g in gradients).sqrt()
        for g in gradients:
            g.mul_((0.5 / most).clamp(max=1.0))
        optimizer.step()
        losses.append(loss.item())
    RESULT = values(losses, model, optimizer)
