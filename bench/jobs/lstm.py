"""A recurrent language model whose state goes from one step to the next, on pieces of one length: every step is the same."""

import torch
from torch import nn
from torch.nn import functional
from training import on_gpu, start, tokens


def main() -> None:
    options, _ = start(__doc__, batch=64, length=128, vocabulary=32000, width=1024, layers=6)
    words = on_gpu(lambda: nn.Embedding(options.vocabulary, options.width))
    width = options.width
    layers = on_gpu(lambda: nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(options.layers)))
    norms = on_gpu(lambda: nn.ModuleList(nn.LayerNorm(options.width) for _ in range(options.layers)))
    parameters = [weight for part in (words, layers, norms) for weight in part.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    states = [None] * options.layers
    for step in range(options.steps):
        text = tokens(options.vocabulary, options.batch, options.length + 1)
        x = functional.dropout(words(text[:, :-1]), 0.3)
        for index, (layer, norm) in enumerate(zip(layers, norms)):
            made, state = layer(norm(x), states[index])
            states[index] = tuple(part.detach() for part in state)
            x = x + functional.dropout(made, 0.3)
        loss = functional.cross_entropy((x @ words.weight.t()).flatten(0, 1), text[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 0.25)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}")


if __name__ == "__main__":
    main()
