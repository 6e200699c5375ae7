"""Blocks are left out by Python's random, as in layer drop."""

import random

import torch
from nets import Block, Text, batch, text_loss, values


class Dropped(Block):
    def forward(self, x):
        return super().forward(x) if random.random() < 0.7 else x


torch.manual_seed(0)
random.seed(0)
model = Text(Dropped)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
losses = []
for step in range(4):
    x, y = batch(step)
    loss = text_loss(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
RESULT = values(losses, model, optimizer, [random.random()])
