"""Gradients are set to zero, so that a branch that is not taken is updated by momentum and decay all the same."""

import torch
from nets import WIDTH, Text, batch, text_loss, values
from torch import nn


class Branching(Text):
    def __init__(self):
        super().__init__()
        self.branch, self.is_taken = nn.Linear(WIDTH, WIDTH), True

    def forward(self, x):
        x = self.tokens(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.branch(x) if self.is_taken else x)


torch.manual_seed(0)
model = Branching()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
losses = []
for step in range(4):
    model.is_taken = step % 2 == 0
    x, y = batch(step)
    loss = text_loss(model(x), y)
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
RESULT = values(losses, model, optimizer)
