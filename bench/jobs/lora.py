"""Fine-tuning of a frozen language model through low-rank adapters, on packed examples or, with --padded 1, padded ones.

Packed, the losses and attention of each example have drawn sizes inside a fixed batch; padded, the whole batch
varies.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from training import Block, Decoder, on_gpu, skewed, start, tokens


class Adapter(nn.Module):
    """A frozen layer and its correction of low rank."""

    def __init__(self, frozen: nn.Linear, rank: int) -> None:
        super().__init__()
        self.frozen = frozen
        self.down = nn.Parameter(torch.randn(rank, frozen.in_features, device="cuda") * 0.01)
        self.up = nn.Parameter(torch.zeros(frozen.out_features, rank, device="cuda"))

    def forward(self, x: Tensor) -> Tensor:
        h = functional.dropout(x, 0.05).float() @ self.down.t() @ self.up.t()
        return self.frozen(x) + h.to(x.dtype)


def packed(block: Block, x: Tensor, lengths: list[int]) -> Tensor:
    """A layer in which each example attends to itself alone."""
    h = block.norm1(x)
    x = x + torch.cat([block.attention(part, causal=True) for part in h.split(lengths, 1)], 1)
    return x + block.forward2(block.norm2(x))


def main() -> None:
    options, draw = start(__doc__, padded=0, batch=8, length=4096, vocabulary=32000, width=2048, layers=12, rank=16)
    size = (options.vocabulary, options.width, options.width // 128, options.layers)
    model = on_gpu(lambda: Decoder(*size), torch.bfloat16).requires_grad_(False)
    for block in model.blocks:
        for name in ("query", "pair", "out"):
            setattr(block.attention, name, Adapter(getattr(block.attention, name), options.rank))
    optimizer = torch.optim.AdamW([weight for weight in model.parameters() if weight.requires_grad], lr=1e-4)
    for step in range(options.steps):
        if options.padded:
            longest = max(skewed(draw, 64, 2048) for _ in range(options.batch))
            loss = model(tokens(options.vocabulary, options.batch, longest))
        else:
            lengths = []
            while (left := options.length - sum(lengths)) > 0:
                lengths.append(min(left, skewed(draw, 64, 2048)))
            text = tokens(options.vocabulary, 1, options.length)
            x = model.tokens(text).requires_grad_()
            for block in model.blocks:
                x = checkpoint(packed, block, x, lengths, use_reentrant=False)
            parts = zip(model.norm(x).split(lengths, 1), text.split(lengths, 1))
            loss = sum(functional.cross_entropy(model.head(h)[0].float(), part[0]) for h, part in parts)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: {longest if options.padded else lengths}")


if __name__ == "__main__":
    main()
