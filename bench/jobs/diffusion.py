"""Text-to-image diffusion in buckets of aspect ratio and size, with averaged weights.

Each step's images come from one bucket, so that the maps of all levels change their shape from step to step.
"""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional
from training import Attention, on_gpu, start, tokens, values

BUCKETS = [(64, 64), (56, 72), (72, 56), (48, 80), (80, 48), (40, 96), (96, 40), (96, 96), (88, 112), (112, 80), (128, 72)]


class Level(nn.Module):
    """Convolutions with the time added, then attention to the map itself and to the text."""

    def __init__(self, before: int, after: int, attends: bool) -> None:
        super().__init__()
        self.norm1, self.first = nn.GroupNorm(32, before), nn.Conv2d(before, after, 3, padding=1)
        self.norm2, self.second = nn.GroupNorm(32, after), nn.Conv2d(after, after, 3, padding=1)
        self.time, self.short = nn.Linear(1024, after), nn.Conv2d(before, after, 1)
        self.own = Attention(after, after // 64) if attends else None
        self.text = Attention(after, after // 64) if attends else None

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        h = self.first(functional.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        x = self.short(x) + self.second(functional.silu(self.norm2(h)))
        if self.own is not None:
            rows = x.flatten(2).transpose(1, 2)
            rows = rows + self.own(rows)
            rows = rows + self.text(rows, text)
            x = rows.transpose(1, 2).unflatten(2, x.shape[2:])
        return x


class UNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        sizes = [width, 2 * width, 4 * width, 4 * width]
        self.enter, self.leave = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.words = nn.Linear(768, 4 * width)
        self.narrow = nn.ModuleList(nn.Linear(4 * width, size) for size in sizes)
        pairs = list(zip([width, *sizes], sizes))
        self.down = nn.ModuleList(Level(a, b, i > 0) for i, (a, b) in enumerate(pairs))
        self.up = nn.ModuleList(Level(2 * b, a, i > 1) for i, (a, b) in reversed(list(enumerate(pairs))))
        self.narrow_up = nn.ModuleList(nn.Linear(4 * width, a) for a, b in reversed(pairs))

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        text, x, kept = self.words(text), self.enter(x), []
        for level, narrow in zip(self.down, self.narrow):
            x = level(x, time, narrow(text))
            kept.append(x)
            x = functional.avg_pool2d(x, 2) if len(kept) < 4 else x
        for level, narrow in zip(self.up, self.narrow_up):
            skipped = kept.pop()
            if x.shape[2:] != skipped.shape[2:]:
                x = functional.interpolate(x, size=skipped.shape[2:])
            x = level(torch.cat([x, skipped], 1), time, narrow(text))
        return self.leave(x)


def main() -> None:
    options, draw = start(__doc__, batch=8, width=256)
    model = on_gpu(lambda: UNet(options.width))
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(options.steps):
        height, width = draw.choice(BUCKETS)
        latents = values(options.batch, 4, height, width, dtype=torch.float32)
        words = values(options.batch, 77, 768, dtype=torch.float32)
        time = tokens(1000, options.batch)
        with torch.autocast("cuda", torch.bfloat16):
            noise = torch.randn_like(latents)
            angles = time[:, None].float() * torch.exp(torch.arange(512, device="cuda") * -0.018)
            found = model(latents + noise, torch.cat([angles.sin(), angles.cos()], 1), words)
            loss = functional.mse_loss(found.float(), noise)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.001)
        print(f"step {step}: {height} x {width}")


if __name__ == "__main__":
    main()
