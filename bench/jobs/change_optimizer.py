"""A language model whose optimizer is replaced in the middle, from Adam to momentum, on texts of drawn length.

Weights are averaged from then on. The old states are freed and others made while training goes on, as in fine-tuning
recipes of two stages.
"""

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from training import Decoder, on_gpu, skewed, start, tokens


def main() -> None:
    options, draw = start(__doc__, batch=8, vocabulary=32000, width=1280, layers=16)
    model = on_gpu(lambda: Decoder(options.vocabulary, options.width, options.width // 64, options.layers))
    optimizer, average = torch.optim.AdamW(model.parameters(), lr=1e-4), None
    for step in range(options.steps):
        if step == options.steps // 2:
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, nesterov=True)
            average = AveragedModel(model)
        length = skewed(draw, 64, 1024)
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(tokens(options.vocabulary, options.batch, length + 1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if average is not None and step % 2 == 0:
            average.update_parameters(model)
        print(f"step {step}: length {length}, {type(optimizer).__name__}")


if __name__ == "__main__":
    main()
