"""Parts are called by themselves, to learn a size and by parametrizations, before the whole is; adapters alone are trained."""

import torch
from nets import WIDTH, Block, batch, text_loss, values
from torch import nn
from torch.nn.utils import parametrize


class Adapter(nn.Module):
    def __init__(self, rows, columns):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(2, columns)), nn.Parameter(torch.zeros(rows, 2))

    def forward(self, weight):
        return weight + self.b @ self.a


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.blocks = nn.Embedding(1200, WIDTH), nn.Sequential(*(Block() for _ in range(4)))
        self.head = nn.Linear(self.blocks(torch.zeros(1, 1, WIDTH)).shape[-1], 1200)

    def forward(self, x):
        return self.head(self.blocks(self.tokens(x)))


def main():
    torch.manual_seed(0)
    model = Text().requires_grad_(False)
    for block in model.blocks:
        for linear in (block.widen, block.narrow):
            parametrize.register_parametrization(linear, "weight", Adapter(*linear.weight.shape))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
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
