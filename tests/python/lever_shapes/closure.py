"""step() computes the gradients itself, by a closure."""

import torch
from nets import Text, batch, text_loss, values

torch.manual_seed(0)
model = Text(layers=3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(4):
    x, y = batch(step)

    def closure():
        optimizer.zero_grad()
        loss = text_loss(model(x), y)
        loss.backward()
        return loss

    losses.append(optimizer.step(closure).item())
RESULT = values(losses, model, optimizer)
