"""Blocks put a loss of theirs into a list of the script, which the loop empties."""

import torch
from nets import Block, Text, batch, text_loss, values

PENALTIES = []


class Penalized(Block):
    def forward(self, x):
        x = super().forward(x)
        PENALTIES.append(x.square().mean())
        return x


def main():
    torch.manual_seed(0)
    model = Text(Penalized)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(4):
        x, y = batch(step)
        loss = text_loss(model(x), y) + 0.1 * sum(PENALTIES)
        PENALTIES.clear()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return values(losses, model, optimizer)


if __name__ == "__main__":
    RESULT = main()
