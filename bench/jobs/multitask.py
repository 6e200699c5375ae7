"""Several tasks on one encoder: each step draws which ones it trains, and each has a head, a loss and a batch of its own.

Some tasks have an optimizer of their own that steps only when they were trained.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from training import Backbone, conv, on_gpu, skewed, start, tokens, values


def main() -> None:
    options, draw = start(__doc__, batch=32, width=64)
    encoder = on_gpu(lambda: Backbone(options.width))
    wide = 8 * options.width
    heads = nn.ModuleDict(
        {
            "depth": nn.Sequential(conv(wide, 512), conv(512, 512), nn.Conv2d(512, 64, 1)),
            "segments": nn.Sequential(
                nn.ConvTranspose2d(wide, 256, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(256, 150, 4, 2, 1)
            ),
            "normals": nn.Sequential(nn.Conv2d(wide, 256, 1), nn.ReLU(), nn.ConvTranspose2d(256, 3, 8, 8)),
            "classes": nn.Linear(wide, 10000),
            "words": nn.LSTM(wide, 1024, batch_first=True),
        }
    ).cuda()
    words = on_gpu(lambda: nn.Linear(1024, 20000))
    shared = torch.optim.AdamW(encoder.parameters(), lr=1e-4)
    own = {name: torch.optim.AdamW(head.parameters(), lr=1e-4) for name, head in heads.items()}

    def lose(task: str, map_: Tensor, side: int) -> Tensor:
        batch = len(map_)
        if task == "classes":
            return functional.cross_entropy(heads[task](map_.mean((2, 3))), tokens(10000, batch))
        if task == "words":
            length = skewed(draw, 5, 60)
            made, _ = heads[task](map_.mean((2, 3))[:, None].expand(-1, length, -1))
            return functional.cross_entropy(words(made).float().flatten(0, 1), tokens(20000, batch * length))
        found = functional.interpolate(heads[task](map_), size=(side // 4, side // 4), mode="bilinear")
        if task == "segments":
            return functional.cross_entropy(found.float(), tokens(150, batch, side // 4, side // 4))
        return found.abs().mean()

    for step in range(options.steps):
        for task in draw.sample(list(heads), draw.randint(1, 4)):
            side = draw.choice([192, 224, 256, 288, 320, 384])
            batch = options.batch * draw.choice([1, 2, 3])
            with torch.autocast("cuda", torch.bfloat16):
                map_ = encoder(values(batch, 3, side, side, dtype=torch.float32))[-1]
                loss = lose(task, map_, side)
            loss.backward()
            if draw.random() < 0.8:
                own[task].step()
                own[task].zero_grad()
        shared.step()
        shared.zero_grad()
        print(f"step {step}: {task} last")


if __name__ == "__main__":
    main()
