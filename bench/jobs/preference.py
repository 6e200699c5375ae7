"""Preference tuning: a chosen and a rejected answer of drawn lengths, each padded to the longest of its half of the batch.

The policy runs on both with gradients and the frozen reference without; accumulated over a few pairs.
"""

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from training import Decoder, on_gpu, skewed, start, tokens


def likely(model: Decoder, text: Tensor, recompute: bool) -> Tensor:
    """The log-probability of each text."""
    x = model.tokens(text[:, :-1]) + model.places(torch.arange(text.shape[1] - 1, device="cuda"))
    for block in model.blocks:
        x = checkpoint(block, x, None, True, use_reentrant=False) if recompute else block(x, causal=True)
    logits = model.head(model.norm(x)).float()
    losses = functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten(), reduction="none")
    return -losses.view(len(text), -1).sum(1)


def main() -> None:
    options, draw = start(__doc__, batch=4, pairs=2, vocabulary=32000, width=2048, layers=10)
    size = (options.vocabulary, options.width, options.width // 128, options.layers)
    policy = on_gpu(lambda: Decoder(*size), torch.bfloat16)
    reference = on_gpu(lambda: Decoder(*size), torch.bfloat16).requires_grad_(False)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=5e-7)
    for step in range(options.steps):
        for _ in range(options.pairs):
            prompt = draw.randint(50, 500)
            chosen, rejected = (
                tokens(options.vocabulary, options.batch, prompt + max(skewed(draw, 50, 1500) for _ in range(options.batch)))
                for _ in range(2)
            )
            with torch.no_grad():
                known = likely(reference, chosen, False) - likely(reference, rejected, False)
            gap = likely(policy, chosen, True) - likely(policy, rejected, True) - known
            (-functional.logsigmoid(0.1 * gap).mean() / options.pairs).backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: {chosen.shape[1]} and {rejected.shape[1]}")


if __name__ == "__main__":
    main()
