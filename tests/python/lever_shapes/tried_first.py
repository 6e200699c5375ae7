"""The model is called once before its optimizer is made, with a batch of nothing."""

import torch
from nets import Text, batch, text_loss, values


def main():
    torch.manual_seed(0)
    model = Text()
    assert model(torch.zeros(1, 6, dtype=torch.long)).shape[-1] == 1200
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(4):
        x, y = batch(step)
        loss = text_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return values(losses, model, optimizer)


if __name__ == "__main__":
    RESULT = main()
