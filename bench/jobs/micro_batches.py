"""Accumulation over a drawn number of micro-batches, as many as it takes to reach a number of tokens that count.

Chat examples differ in how much of them is trained on, so that both the length and the number of micro-batches vary.
"""

import torch
from torch import nn
from training import Decoder, on_gpu, skewed, start, tokens


def main() -> None:
    options, draw = start(__doc__, batch=4, aim=9000, vocabulary=32000, width=1024, layers=14)
    model = on_gpu(lambda: Decoder(options.vocabulary, options.width, options.width // 64, options.layers))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(options.steps):
        lengths, counted = [], 0
        while counted < options.aim:
            lengths.append(skewed(draw, 64, 2000))
            counted += int(options.batch * lengths[-1] * draw.uniform(0.3, 0.9))
        total = torch.zeros((), device="cuda")
        for length in lengths:
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(tokens(options.vocabulary, options.batch, length + 1)) / len(lengths)
            loss.backward()
            total += loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: {lengths}")


if __name__ == "__main__":
    main()
