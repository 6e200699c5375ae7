"""One small function and one layer are compiled; the blocks call the function."""

import torch
from nets import CLASSES, WIDTH, batch, text_loss, values
from torch import nn


@torch.compile(backend="aot_eager")
def squared(x):
    return x.relu().square()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.widen, self.narrow = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)

    def forward(self, x):
        return x + self.narrow(squared(self.widen(self.norm(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.blocks = nn.Embedding(CLASSES, WIDTH), nn.ModuleList(Block() for _ in range(3))
        self.norm, self.head = torch.compile(nn.LayerNorm(WIDTH), backend="aot_eager"), nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        x = self.tokens(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main():
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(3):
        x, y = batch(step)
        loss = text_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return values(losses, model, optimizer)


if __name__ == "__main__":
    RESULT = main()
