"""Autocast and a gradient scaler."""

import torch
from nets import Text, batch, text_loss, values


def main():
    torch.manual_seed(0)
    model = Text()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    losses = []
    for step in range(5):
        x, y = batch(step)
        with torch.autocast("cpu", torch.bfloat16):
            loss = text_loss(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss if step != 2 else loss * float("inf")).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    return values(losses, model, optimizer, [scaler.get_scale()])


if __name__ == "__main__":
    RESULT = main()
