"""At the module's level; the optimizer by its name, and its option in a dictionary."""

import torch
from nets import Text, batch, text_loss, values

torch.manual_seed(0)
model = Text()
options = {"lr": 1e-2, "foreach": None, "fused": None}
optimizer = getattr(torch.optim, "Adam")(model.parameters(), **options)
losses = []
for step in range(4):
    optimizer.zero_grad(set_to_none=True)
    x, y = batch(step)
    loss = text_loss(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
RESULT = values(losses, model, optimizer)
