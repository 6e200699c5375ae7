"""Gradients are freed by the model, before each forward pass."""

import torch
from nets import Text, batch, text_loss, values

torch.manual_seed(0)
model = Text()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
losses = []
for step in range(4):
    model.zero_grad()
    x, y = batch(step)
    loss = text_loss(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
RESULT = values(losses, model, optimizer)
