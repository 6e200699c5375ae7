"""A curriculum: the length of the text grows as training goes on while the batch shrinks, with some drawn lengths between.

What was recorded at the start is no guide to what comes at the end.
"""

import torch
from torch import nn
from training import Decoder, on_gpu, start, tokens


def main() -> None:
    options, draw = start(__doc__, tokens=16384, vocabulary=32000, width=1024, layers=12, grow=28)
    model = on_gpu(lambda: Decoder(options.vocabulary, options.width, options.width // 64, options.layers), torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(options.steps):
        length = 128 + (2048 - 128) * min(step, options.grow) // options.grow // 64 * 64
        if draw.random() < 0.3:
            length = draw.randint(96, length)
        batch = max(1, int(options.tokens / length))
        loss = model(tokens(options.vocabulary, batch, length + 1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: {batch} x {length}")


if __name__ == "__main__":
    main()
