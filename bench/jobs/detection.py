"""Object detection in two stages, on images of any size padded to the largest of the batch.

The numbers of true boxes and of proposals are drawn, too. Every public detector trains so: the scale of the short
side is drawn, and each image keeps its own shape.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from training import Backbone, conv, indices, on_gpu, start, values


class Detector(nn.Module):
    """A residual network, a pyramid, a head for proposals and one for regions."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.backbone = Backbone(width)
        self.sides = nn.ModuleList(nn.Conv2d(width << stage, 256, 1) for stage in (1, 2, 3))
        self.smooth = nn.ModuleList(nn.Conv2d(256, 256, 3, padding=1) for _ in range(3))
        self.objects = nn.Sequential(conv(256, 256), nn.Conv2d(256, 3 * 5, 1))
        self.regions = nn.Sequential(nn.Linear(256 * 49, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU())
        self.classes, self.boxes = nn.Linear(1024, classes), nn.Linear(1024, 4 * classes)

    def pyramid(self, images: Tensor) -> list[Tensor]:
        maps = [side(level) for side, level in zip(self.sides, self.backbone(images))]
        for low, high in ((1, 2), (0, 1)):
            maps[low] = maps[low] + functional.interpolate(maps[high], size=maps[low].shape[2:])
        return [smooth(level) for smooth, level in zip(self.smooth, maps)]


def overlaps(boxes: Tensor, anchors: Tensor) -> Tensor:
    """How much each of some boxes overlaps each anchor."""
    low = torch.maximum(boxes[:, None, :2], anchors[None, :, :2])
    high = torch.minimum(boxes[:, None, 2:], anchors[None, :, 2:])
    shared = (high - low).clamp(min=0).prod(2)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)[:, None] + (anchors[:, 2:] - anchors[:, :2]).prod(1)[None]
    return shared / (areas - shared)


def main() -> None:
    options, draw = start(__doc__, batch=6, width=64, classes=81)
    model = on_gpu(lambda: Detector(options.width, options.classes))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for step in range(options.steps):
        short = [draw.choice(range(480, 801, 32)) for _ in range(options.batch)]
        shapes = [sorted((side, min(1333, int(side * draw.uniform(1, 1.8)))), reverse=draw.random() < 0.3) for side in short]
        height, width = (-(-max(shape[axis] for shape in shapes) // 32) * 32 for axis in (0, 1))
        images = torch.zeros(options.batch, 3, height, width, device="cuda")
        for image, shape in zip(images, shapes):
            image[:, : shape[0], : shape[1]].copy_(values(3, *shape, dtype=torch.float32))
        with torch.autocast("cuda", torch.bfloat16):
            maps = model.pyramid(images)
            found = torch.cat([model.objects(level).flatten(2) for level in maps], 2).unflatten(1, (3, 5)).float()
            anchors = torch.rand(found.shape[3] * 3, 4, device="cuda")
            loss = found[:, :, :4].abs().mean()
            pooled = []
            for image in range(options.batch):
                match = overlaps(values(1 + int(draw.expovariate(1 / 9)), 4, dtype=torch.float32), anchors)
                loss = loss + functional.binary_cross_entropy_with_logits(found[image, :, 4].flatten(), match.amax(0))
                flat = maps[0][image].flatten(1)
                proposals = draw.randint(200, 700)
                pooled.append(flat[:, indices(flat.shape[1], 49 * proposals)].unflatten(1, (proposals, 49)))
            regions = model.regions(torch.cat(pooled, 1).transpose(0, 1).flatten(1))
            positive = indices(len(regions), draw.randint(20, len(regions) // 4))
            loss = loss + functional.cross_entropy(model.classes(regions), indices(options.classes, len(regions)))
            loss = loss + model.boxes(regions[positive]).abs().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: {height} x {width}, {len(regions)} regions")


if __name__ == "__main__":
    main()
