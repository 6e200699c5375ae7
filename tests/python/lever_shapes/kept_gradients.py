"""Gradients are never freed: they are a running sum, which the script scales itself."""

import torch
from nets import Text, batch, text_loss, values

torch.manual_seed(0)
model = Text()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(4):
    x, y = batch(step)
    loss = text_loss(model(x), y)
    loss.backward()
    optimizer.step()
    for p in model.parameters():
        p.grad.mul_(0.9)
    losses.append(loss.item())
RESULT = values(losses, model, optimizer)
