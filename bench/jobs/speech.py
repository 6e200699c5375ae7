"""Speech recognition with a conformer and a transducer, on utterances and transcripts of any length.

Batches are filled to a number of seconds. The transducer's joint network is a tensor of batch, frames, symbols and
vocabulary, whose size jumps from batch to batch.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from training import Attention, FeedForward, on_gpu, skewed, start, tokens, values


class Conformer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.before, self.after = FeedForward(width), FeedForward(width)
        self.attention = Attention(width, width // 64)
        self.gate, self.leave = nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)
        self.depth, self.scale = nn.Conv1d(width, width, 31, padding=15, groups=width), nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * functional.dropout(self.before(self.norms[0](x)), 0.1)
        x = x + functional.dropout(self.attention(self.norms[1](x)), 0.1)
        h = functional.glu(self.gate(self.norms[2](x).transpose(1, 2)), 1)
        x = x + self.leave(functional.silu(self.scale(self.depth(h)))).transpose(1, 2)
        return self.norms[4](x + 0.5 * functional.dropout(self.after(self.norms[3](x)), 0.1))


class Transducer(nn.Module):
    def __init__(self, width: int, layers: int, vocabulary: int) -> None:
        super().__init__()
        self.enter = nn.Sequential(nn.Conv2d(1, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 2, 1), nn.ReLU())
        self.flat = nn.Linear(64 * 20, width)
        self.layers = nn.ModuleList(Conformer(width) for _ in range(layers))
        self.symbols, self.predict = nn.Embedding(vocabulary, width), nn.LSTM(width, width, batch_first=True)
        self.joint = nn.Linear(width, vocabulary)

    def forward(self, sound: Tensor, text: Tensor) -> Tensor:
        x = self.flat(self.enter(sound[:, None]).transpose(1, 2).flatten(2))
        for layer in self.layers:
            x = layer(x)
        y, _ = self.predict(self.symbols(text))
        return self.joint(torch.tanh(x[:, :, None] + y[:, None]))


def main() -> None:
    options, draw = start(__doc__, frames=12000, width=512, layers=12, vocabulary=512)
    model = on_gpu(lambda: Transducer(options.width, options.layers, options.vocabulary))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(options.steps):
        longest = skewed(draw, 200, 1600)
        batch = max(1, options.frames // longest)
        text = tokens(options.vocabulary, batch, max(4, int(longest / 25 * draw.uniform(0.6, 1.4))))
        sound = values(batch, longest, 80, dtype=torch.float32)
        for _ in range(2):
            first, band = draw.randrange(longest // 2), draw.randint(5, 27)
            sound[:, first : first + draw.randint(10, 100)] = 0
            sound[:, :, draw.randrange(80 - band) :][:, :, :band] = 0
        with torch.autocast("cuda", torch.bfloat16):
            chances = functional.log_softmax(model(sound, text).float(), 3)
        loss = -chances[..., 0].logsumexp(2).mean() - chances.amax(3).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: {batch} x {longest} frames, {text.shape[1]} symbols")


if __name__ == "__main__":
    main()
