"""An average of the weights in a copy of the model, made while it trains, too; the model is saved whole."""

import copy
import io

import torch
from nets import Text, batch, text_loss, values


def evaluated(model):
    model.eval()
    with torch.no_grad():
        return text_loss(model(batch(99)[0]), batch(99)[1]).item()


def main():
    torch.manual_seed(0)
    model = Text()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    ema, losses = None, []
    for step in range(4):
        x, y = batch(step)
        loss = text_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if ema is None:
            ema = copy.deepcopy(model)
            for p in ema.parameters():
                p.detach().zero_()
        with torch.no_grad():
            for mean, p in zip(ema.parameters(), model.parameters()):
                mean.lerp_(p, 0.5)
        losses.append(evaluated(ema))
    saved = io.BytesIO()
    torch.save(model, saved)
    saved.seek(0)
    loaded = torch.load(saved, weights_only=False)
    with torch.no_grad():
        for p in loaded.parameters():
            p.mul_(0.5)
    losses.append(evaluated(loaded))
    return values(losses, model, ema, loaded, optimizer)


if __name__ == "__main__":
    RESULT = main()
