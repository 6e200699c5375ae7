"""Accelerate: the loop of its quick tour, with accumulation, clipping and a scheduler."""

import torch
from accelerate import Accelerator
from tiny import STEPS, Tokens, language_model

accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
model = language_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer)
loader = torch.utils.data.DataLoader(Tokens(), batch_size=8, shuffle=True)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
for number, batch in enumerate(loader):
    with accelerator.accumulate(model):
        loss = model(**batch).loss
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    if number + 1 == 2 * STEPS:
        break
