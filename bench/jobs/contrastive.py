"""Contrastive learning with a queue of past keys that grows, and a drawn number of crops of drawn sizes for each image.

The similarity to the queue and the small crops change from step to step, the large crops do not.
"""

import copy

import torch
from torch import nn
from torch.nn import functional
from training import Backbone, start, tokens, values


def main() -> None:
    options, draw = start(__doc__, batch=96, width=64, queue=65536)
    enter, project = Backbone(options.width).cuda(), nn.Linear(8 * options.width, 256).cuda()
    slow, slow_project = copy.deepcopy(enter).requires_grad_(False), copy.deepcopy(project).requires_grad_(False)
    learned = [*enter.parameters(), *project.parameters()]
    optimizer = torch.optim.SGD(learned, lr=0.03, momentum=0.9)
    queue = torch.randn(1024, 256, device="cuda")
    for step in range(options.steps):
        sides = [224] + [draw.choice([96, 112, 128, 160]) for _ in range(draw.randint(1, 4))]
        with torch.autocast("cuda", torch.bfloat16):
            with torch.no_grad():
                keys = slow_project(slow(values(options.batch, 3, 224, 224, dtype=torch.float32))[-1].mean((2, 3)))
                keys = functional.normalize(keys.float(), dim=1)
            loss = 0
            for side in sides:
                map_ = enter(values(options.batch, 3, side, side, dtype=torch.float32))[-1]
                found = functional.normalize(project(map_.mean((2, 3))).float(), dim=1)
                near, far = (found * keys).sum(1, keepdim=True), found @ queue.t()
                loss = loss + functional.cross_entropy(torch.cat([near, far], 1) / 0.07, tokens(1, options.batch))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            torch._foreach_lerp_([*slow.parameters(), *slow_project.parameters()], learned, 0.001)
            queue = torch.cat([queue, keys.repeat(draw.randint(1, 16), 1)])[-options.queue :]
        print(f"step {step}: {len(queue)} keys, crops {sides}")


if __name__ == "__main__":
    main()
