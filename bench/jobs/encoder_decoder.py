"""An encoder and a decoder on texts padded to two fixed lengths: every step is the same.

With --pointers 1 a drawn number of words is compared with others in a second loss: a small part that varies.
"""

import torch
from torch.nn import functional
from training import indices, on_gpu, start, tokens
from translation import Translator


def main() -> None:
    options, draw = start(
        __doc__, batch=32, source=512, target=384, vocabulary=32000, width=1024, layers=6, pointers=0
    )
    model = on_gpu(lambda: Translator(options.vocabulary, options.width, options.layers))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(options.steps):
        source = tokens(options.vocabulary, options.batch, options.source)
        target = tokens(options.vocabulary, options.batch, options.target + 1)
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(source, target)
            if options.pointers:
                words = model.tokens(indices(options.vocabulary, draw.randint(200, 6000)))
                near = functional.normalize(words, dim=1) @ model.tokens.weight[:4096].t()
                loss = loss + near.float().logsumexp(1).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}")


if __name__ == "__main__":
    main()
