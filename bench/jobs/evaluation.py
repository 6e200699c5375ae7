"""Gradient accumulation with an evaluation and a checkpoint every few steps, the evaluation's batches cut to drawn lengths.

The training steps repeat; what comes between them has other sizes, no gradients, and copies of all weights.
"""

import copy
import io

import torch
from torch import nn
from training import Decoder, on_gpu, skewed, start, tokens


def main() -> None:
    options, draw = start(__doc__, batch=4, micro_batches=4, length=1024, vocabulary=32000, width=1024, layers=12)
    model = on_gpu(lambda: Decoder(options.vocabulary, options.width, options.width // 64, options.layers), torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(options.steps):
        for _ in range(options.micro_batches):
            (model(tokens(options.vocabulary, options.batch, options.length + 1)) / options.micro_batches).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 3 == 2:
            model.eval()
            with torch.no_grad():
                lengths = [skewed(draw, 64, 1500) for _ in range(draw.randint(3, 8))]
                found = [model(tokens(options.vocabulary, 4 * options.batch, length)) for length in lengths]
                torch.stack(found).mean()
            model.train()
        if step % 7 == 6:
            best = copy.deepcopy(model.state_dict())
            kept = {name: weight.float().cpu() for name, weight in best.items()}
            torch.save({name: weight.shape for name, weight in kept.items()}, io.BytesIO())
        print(f"step {step}")


if __name__ == "__main__":
    main()
