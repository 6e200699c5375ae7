"""Saved, made anew, and loaded, twice: what is saved goes on where it was."""

import io

import torch
from nets import Text, batch, text_loss, values


def train(first, checkpoint):
    torch.manual_seed(first)
    model = Text()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    if checkpoint is not None:
        checkpoint.seek(0)
        loaded = torch.load(checkpoint)
        model.load_state_dict(loaded["model"])
        optimizer.load_state_dict(loaded["optimizer"])
    losses = []
    for step in range(first, first + 3):
        x, y = batch(step)
        loss = text_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    saved = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, saved)
    return saved, values(losses, model, optimizer)


if __name__ == "__main__":
    checkpoint, RESULT = None, []
    for first in (0, 3, 6):
        checkpoint, found = train(first, checkpoint)
        RESULT += found
