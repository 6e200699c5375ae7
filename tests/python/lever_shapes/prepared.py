"""Model and optimizer are wrapped after the optimizer is made, as accelerate does; a schedule advances with each step."""

import torch
from nets import Text, batch, text_loss, values
from torch import nn


class Wrapped(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        return self.module(*inputs)


class Prepared:
    def __init__(self, optimizer):
        self.optimizer = optimizer

    def __getattr__(self, name):
        return getattr(self.optimizer, name)

    def step(self, closure=None):
        self.optimizer.step(closure)


def main():
    torch.manual_seed(0)
    model = Text()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (step + 1) ** -0.5)
    model, optimizer = Wrapped(model), Prepared(optimizer)
    losses = []
    for step in range(4):
        x, y = batch(step)
        loss = text_loss(model(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return values(losses, model.module, optimizer.optimizer)


if __name__ == "__main__":
    RESULT = main()
