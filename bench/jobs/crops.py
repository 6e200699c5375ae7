"""Segmentation of volumes with a U-Net in three dimensions, on crops of drawn size, with losses at several depths.

Scans have no common shape: each crop is as large as its scan and the memory allow, and some batches hold one, some
two.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from training import on_gpu, start, tokens, values


def twice(before: int, after: int) -> nn.Sequential:
    """Two convolutions."""
    layers = []
    for size in (before, after):
        layers += [nn.Conv3d(size, after, 3, padding=1), nn.InstanceNorm3d(after, affine=True), nn.LeakyReLU(0.01)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        sizes = [min(320, width << level) for level in range(5)]
        self.down = nn.ModuleList(twice(a, b) for a, b in zip([1, *sizes], sizes))
        pairs = list(zip(sizes, sizes[1:]))[::-1]
        self.grow = nn.ModuleList(nn.ConvTranspose3d(b, a, 2, 2) for a, b in pairs)
        self.up = nn.ModuleList(twice(2 * a, a) for a, b in pairs)
        self.heads = nn.ModuleList(nn.Conv3d(a, classes, 1) for a, b in pairs)

    def forward(self, x: Tensor) -> list[Tensor]:
        kept, found = [], []
        for level in self.down:
            x = level(functional.max_pool3d(x, 2) if kept else x)
            kept.append(x)
        kept.pop()
        for grow, level, head in zip(self.grow, self.up, self.heads):
            x = level(torch.cat([grow(x), kept.pop()], 1))
            found.append(head(x))
        return found


def main() -> None:
    options, draw = start(__doc__, width=32, classes=14)
    model = on_gpu(lambda: UNet(options.width, options.classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.99, nesterov=True)
    scaler = torch.amp.GradScaler("cuda", enabled=False)
    for step in range(options.steps):
        shape = [16 * draw.randint(4, 10) for _ in range(3)]
        batch = draw.randint(1, 2)
        with torch.autocast("cuda", torch.bfloat16):
            found = model(values(batch, 1, *shape, dtype=torch.float32))
            loss = 0
            for level in found[1:]:
                aim = tokens(options.classes, batch, *level.shape[2:])
                chances = level.float().softmax(1)
                shared = (chances * functional.one_hot(aim, options.classes).movedim(4, 1)).sum((2, 3, 4))
                loss = loss + functional.cross_entropy(level.float(), aim) - (shared / (chances.sum((2, 3, 4)) + 1)).mean()
        scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 12.0)
        scaler.step(optimizer)
        optimizer.zero_grad()
        print(f"step {step}: {batch} x {shape}")


if __name__ == "__main__":
    main()
