"""A vision transformer on images of one size, with its weights averaged: every step is the same.

With --metric 1 a retrieval metric over a drawn number of past embeddings is computed each step without gradients;
with --boxes 1 a small head predicts a drawn number of boxes from the fixed backbone.
"""

import copy

import torch
from torch import nn
from torch.nn import functional
from training import Block, indices, skewed, start, tokens, values


def main() -> None:
    options, draw = start(__doc__, batch=64, side=224, width=768, layers=12, classes=1000, metric=0, boxes=0)
    places = (options.side // 16) ** 2
    model = nn.ModuleDict(
        {
            "enter": nn.Conv2d(3, options.width, 16, 16),
            "places": nn.Embedding(places, options.width),
            "blocks": nn.ModuleList(Block(options.width, options.width // 64) for _ in range(options.layers)),
            "leave": nn.Linear(options.width, options.classes),
            "boxes": nn.Sequential(nn.Linear(options.width, 256), nn.ReLU(), nn.Linear(256, 4)),
        }
    ).cuda()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    known = torch.randn(200000, options.width, device="cuda") if options.metric else None
    for step in range(options.steps):
        images = values(options.batch, 3, options.side, options.side, dtype=torch.float32)
        with torch.autocast("cuda", torch.bfloat16):
            x = model["enter"](images).flatten(2).transpose(1, 2) + model["places"](torch.arange(places, device="cuda"))
            for block in model["blocks"]:
                x = block(x)
            pooled = x.mean(1)
            loss = functional.cross_entropy(model["leave"](pooled), tokens(options.classes, options.batch))
            if options.boxes:
                wanted = indices(options.batch * places, sum(skewed(draw, 1, 60) for _ in range(options.batch)))
                found = model["boxes"](x.flatten(0, 1)[wanted])
                loss = loss + functional.smooth_l1_loss(found.float(), values(len(wanted), 4, dtype=torch.float32))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.001)
            if known is not None:
                parts = known[: draw.randint(20000, len(known))].split(20000)
                near = [(pooled.float() @ part.t()).topk(20).values for part in parts]
                torch.cat(near, 1).topk(20).values.mean()
        print(f"step {step}")


if __name__ == "__main__":
    main()
