"""A language model on texts of one length: every step is the same.

With --recompute 1 the layers are computed again in the backward pass; with --micro-batches N gradients are
accumulated, and the loss is looked at every fifth step.
"""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from training import Decoder, on_gpu, start, tokens


def main() -> None:
    options, _ = start(
        __doc__, batch=8, micro_batches=1, recompute=0, length=1024, vocabulary=50304, width=1280, layers=16
    )
    model = on_gpu(lambda: Decoder(options.vocabulary, options.width, options.width // 64, options.layers))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    losses = []
    for step in range(options.steps):
        for _ in range(options.micro_batches):
            text = tokens(options.vocabulary, options.batch, options.length + 1)
            with torch.autocast("cuda", torch.bfloat16):
                x = model.tokens(text[:, :-1]) + model.places(torch.arange(options.length, device="cuda"))
                for block in model.blocks:
                    x = checkpoint(block, x, None, True, use_reentrant=False) if options.recompute else block(x, causal=True)
                logits = model.head(model.norm(x))
                loss = functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten()) / options.micro_batches
            loss.backward()
            losses.append(loss.detach())
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 5 == 4:
            print(f"step {step}: loss {torch.stack(losses).mean().item():.3f}, norm {norm.item():.3f}")
            losses.clear()


if __name__ == "__main__":
    main()
