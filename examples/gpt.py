"""Trains a small GPT on random tokens.

    python examples/gpt.py                                                        # on a GPU
    stalloc trace --dry-run h100-80gb --steps 3 -o traces -- python examples/gpt.py   # without one
"""

import argparse

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Attention and a feed-forward network, each added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """A decoder-only transformer; returns the loss of predicting each next token."""

    def __init__(self, vocabulary: int, length: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        x, y = text[:, :-1], text[:, 1:]
        h = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = block(h)
        return functional.cross_entropy(self.head(self.norm(h)).flatten(0, 1), y.flatten())


def arguments() -> argparse.ArgumentParser:
    """The options that the examples with this model share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in dict(steps=5, layers=6, width=512, heads=8, length=512, batch=8, vocabulary=32000).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seed", type=int, default=0, help="of everything random")
    return parser


def build(options: argparse.Namespace) -> GPT:
    """The model on the GPU, in bfloat16."""
    size = (options.vocabulary, options.length, options.width, options.heads, options.layers)
    return GPT(*size).to("cuda", torch.bfloat16)


def main() -> None:
    options = arguments().parse_args()
    torch.manual_seed(options.seed)
    model = build(options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(options.steps):
        loss = model(torch.randint(options.vocabulary, (options.batch, options.length + 1)).cuda())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.3f}, peak {torch.cuda.max_memory_allocated() >> 20} MiB")


if __name__ == "__main__":
    main()
