"""Layers by their names in a dictionary, as torchtitan has them, and a list of dictionaries with blocks in them."""

import torch
from nets import Block, CLASSES, WIDTH, batch, text_loss, values
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.head = nn.Embedding(CLASSES, WIDTH), nn.Linear(WIDTH, CLASSES, bias=False)
        self.layers = nn.ModuleDict({str(index): Block() for index in range(3)})
        self.stages = nn.ModuleList(nn.ModuleDict({"0": nn.Sequential(Block(), Block()), "norm": nn.LayerNorm(WIDTH)}) for _ in range(2))

    def forward(self, x):
        x = self.tokens(x)
        for layer in self.layers.values():
            x = layer(x)
        for stage in self.stages:
            x = stage["norm"](stage["0"](x))
        return self.head(x)


def main():
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(4):
        x, y = batch(step)
        loss = text_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return values(losses, model, optimizer)


if __name__ == "__main__":
    RESULT = main()
