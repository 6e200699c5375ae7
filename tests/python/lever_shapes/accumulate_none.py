"""Gradients are freed one by one, after the forward pass."""

import torch
from nets import Text, batch, text_loss, values

torch.manual_seed(0)
model = Text()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
losses = []
for step in range(4):
    x, y = batch(step)
    loss = text_loss(model(x), y)
    for p in model.parameters():
        p.grad = None
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
RESULT = values(losses, model, optimizer)
