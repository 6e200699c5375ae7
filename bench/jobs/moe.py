"""A mixture of experts whose load drifts: every layer sends each expert a number of tokens that walks from step to step.

With --last 1 only the last layer has experts, so that few requests of a fixed step vary.
"""

import math
import random

import torch
from torch import Tensor, nn
from training import Attention, Decoder, FeedForward, indices, on_gpu, start, tokens


class Load:
    """How many of some tokens each expert of a layer gets."""

    def __init__(self, draw: random.Random, experts: int) -> None:
        self.draw, self.wants = draw, [draw.gauss(0, 0.3) for _ in range(experts)]

    def counts(self, total: int) -> list[int]:
        self.wants = [0.95 * want + self.draw.gauss(0, 0.15) for want in self.wants]
        whole = sum(map(math.exp, self.wants))
        counts = [int(total * math.exp(want) / whole) for want in self.wants]
        counts[0] += total - sum(counts)
        return counts


class Mixture(nn.Module):
    """Experts, each for the tokens that it is sent."""

    def __init__(self, width: int, experts: int, choices: int, draw: random.Random) -> None:
        super().__init__()
        self.choices, self.load = choices, Load(draw, experts)
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(FeedForward(width, 2) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, 1)
        chances = self.router(rows).float().softmax(1)
        order = indices(len(rows), len(rows) * self.choices)
        sent = rows[order]
        parts = sent.split(self.load.counts(len(sent)))
        made = torch.cat([expert(part) for expert, part in zip(self.experts, parts)])
        made = made * chances.amax(1)[order, None].to(made.dtype)
        return torch.zeros_like(rows).index_add(0, order, made).view_as(x)


class Layer(nn.Module):
    def __init__(self, width: int, mixture: nn.Module) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mixture = Attention(width, width // 64), mixture

    def forward(self, x: Tensor, causal: bool) -> Tensor:
        x = x + self.attention(self.norm1(x), causal=causal)
        return x + self.mixture(self.norm2(x))


def main() -> None:
    sizes = dict(batch=8, length=1024, vocabulary=32000, width=1024, layers=8, experts=16, choices=2)
    options, draw = start(__doc__, last=0, **sizes)

    def make() -> Decoder:
        model = Decoder(options.vocabulary, options.width, options.width // 64, options.layers)
        for layer in range(options.layers):
            if layer == options.layers - 1 or not options.last and layer % 2:
                mixture = Mixture(options.width, options.experts, options.choices, draw)
                model.blocks[layer] = Layer(options.width, mixture)
        return model

    model = on_gpu(make, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(options.steps):
        loss = model(tokens(options.vocabulary, options.batch, options.length + 1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}")


if __name__ == "__main__":
    main()
