"""Translation with batches of about as many tokens: batch, source length and target length are all drawn.

Loaders sort sentences by length and fill each batch to a number of tokens, so that short ones come in large batches.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from training import Block, on_gpu, skewed, start, tokens


class Translator(nn.Module):
    def __init__(self, vocabulary: int, width: int, layers: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(1024, width)
        self.encoder = nn.ModuleList(Block(width, width // 64) for _ in range(layers))
        self.decoder = nn.ModuleList(Block(width, width // 64, cross=True) for _ in range(layers))

    def embed(self, text: Tensor) -> Tensor:
        return functional.dropout(self.tokens(text) + self.places(torch.arange(text.shape[1], device="cuda")), 0.1)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x, y = self.embed(source), self.embed(target[:, :-1])
        mask = (source != 0)[:, None, None, :]
        for block in self.encoder:
            x = block(x, mask=mask)
        for block in self.decoder:
            y = block(y, x, causal=True)
        logits = y @ self.tokens.weight.t()
        return functional.cross_entropy(logits.float().flatten(0, 1), target[:, 1:].flatten(), label_smoothing=0.1)


def main() -> None:
    options, draw = start(__doc__, tokens=8192, vocabulary=32000, width=1024, layers=6)
    model = on_gpu(lambda: Translator(options.vocabulary, options.width, options.layers))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98))
    for step in range(options.steps):
        source = skewed(draw, 8, 250)
        target = max(4, int(source * draw.uniform(0.7, 1.5)))
        batch = max(8, options.tokens // max(source, target) // 8 * 8)
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(tokens(options.vocabulary, batch, source), tokens(options.vocabulary, batch, target + 1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: {batch} x {source} to {target}")


if __name__ == "__main__":
    main()
