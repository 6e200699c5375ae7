"""Gradients of two halves, each loss divided."""

import torch
from nets import Text, batch, text_loss, values

torch.manual_seed(0)
model = Text()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
losses = []
for step in range(8):
    x, y = batch(step)
    loss = text_loss(model(x), y) / 2
    loss.backward()
    if step % 2:
        optimizer.step()
        optimizer.zero_grad()
    losses.append(loss.item())
RESULT = values(losses, model, optimizer)
