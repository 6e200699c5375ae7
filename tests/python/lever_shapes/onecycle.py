"""A schedule that changes the learning rate and betas."""

import torch
from nets import Text, batch, text_loss, values

torch.manual_seed(0)
model = Text()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=8)
losses = []
for step in range(6):
    x, y = batch(step)
    loss = text_loss(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    schedule.step()
    losses.append(loss.item())
RESULT = values(losses, model, optimizer, [group["betas"] for group in optimizer.param_groups])
