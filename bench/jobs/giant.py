"""Short texts with a giant batch now and then: one step in ten is several times larger than the others.

Documents are not cut in long-context tuning, so that a rare one sets the peak and the rest leave it idle.
"""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from training import Decoder, on_gpu, skewed, start, tokens


def main() -> None:
    options, draw = start(__doc__, batch=4, vocabulary=32000, width=1536, layers=14)
    size = (options.vocabulary, options.width, options.width // 128, options.layers, 16384)
    model = on_gpu(lambda: Decoder(*size), torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(options.steps):
        giant = draw.random() < 0.1
        batch, length = (1, draw.randint(8000, 12000)) if giant else (options.batch, skewed(draw, 128, 900))
        text = tokens(options.vocabulary, batch, length + 1)
        x = model.tokens(text[:, :-1]) + model.places(torch.arange(length, device="cuda"))
        for block in model.blocks:
            x = checkpoint(block, x, None, True, use_reentrant=False) if giant else block(x, causal=True)
        logits = model.head(model.norm(x))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        del logits
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: {batch} x {length}")


if __name__ == "__main__":
    main()
