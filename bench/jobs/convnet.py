"""A residual convolutional network on images of one size: every step is the same.

With --epoch N the last batch of every N is smaller, as where a loader does not drop it.
"""

import torch
from torch import nn
from torch.nn import functional
from training import Backbone, cosine, start, tokens, values


def main() -> None:
    options, _ = start(__doc__, batch=128, side=224, width=64, classes=1000, epoch=0)
    model, head = Backbone(options.width).cuda(), nn.Linear(8 * options.width, options.classes).cuda()
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1, momentum=0.9)
    for step in range(options.steps):
        short = options.epoch and step % options.epoch == options.epoch - 1
        batch = options.batch * 3 // 8 if short else options.batch
        with torch.autocast("cuda", torch.bfloat16):
            map_ = model(values(batch, 3, options.side, options.side, dtype=torch.float32))[-1]
            loss = functional.cross_entropy(head(map_.mean((2, 3))), tokens(options.classes, batch))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        cosine(optimizer, step, options.steps)
        print(f"step {step}: {loss.item():.3f}")


if __name__ == "__main__":
    main()
