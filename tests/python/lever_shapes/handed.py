"""Blocks change what they are handed: the input in place, as ReLU(True) does it, and a list of skips that the way back takes from."""

import torch
from nets import Block, Text, batch, text_loss, values
from torch.nn import functional as F


class InPlace(Block):
    def forward(self, x, skips):
        skips.append(x.sum())
        return super().forward(F.relu_(x)) + 0.01 * skips.pop(0)


class Skipping(Text):
    def forward(self, x):
        x, skips = self.tokens(x) * 1.0, []
        skips.append(x.mean())
        for block in self.blocks:
            x = block(x, skips)
        return self.head(x)


torch.manual_seed(0)
model = Skipping(InPlace)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
losses = []
for step in range(4):
    x, y = batch(step)
    loss = text_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
RESULT = values(losses, model, optimizer)
