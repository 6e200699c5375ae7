"""A small language model without a lever pulled. What a function holds when it first calls the model, the batch, must not be held for longer."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--bad", action="store_true", help="checkpoints already, clips gradients, and calls backward twice")
options = parser.parse_args()
WIDTH, CLASSES, LENGTH = 256, 4000, 256


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.widen, self.narrow = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 8 * WIDTH), nn.Linear(8 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(F.gelu(self.widen(self.norm(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.blocks = nn.Embedding(CLASSES, WIDTH), nn.ModuleList(Block() for _ in range(8))
        self.head = nn.Linear(WIDTH, CLASSES, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.tokens(x)
        for block in self.blocks:
            x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False) if options.bad else block(x)
        return self.head(x)


def main() -> None:
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _step in range(6):
        text = torch.randint(CLASSES, (options.batch, LENGTH + 1)).cuda()
        optimizer.zero_grad()
        logits = model(text[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, CLASSES), text[:, 1:].reshape(-1))
        loss.backward(retain_graph=options.bad)
        if options.bad:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


main()
