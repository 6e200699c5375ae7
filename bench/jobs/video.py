"""A video model on clips of drawn length and size, encoded in a drawn number of pieces, then read by a transformer.

Steps are marked. Clips are cut at scene changes, and a batch holds as many of them as a budget of frames allows.
"""

import torch
from torch import nn
from torch.nn import functional
from training import Backbone, Block, on_gpu, skewed, start, tokens, values

import stalloc


def main() -> None:
    options, draw = start(__doc__, frames=160, width=512, layers=8, classes=400)
    enter, grow = Backbone(48).cuda(), nn.Linear(384, options.width).cuda()
    blocks = on_gpu(lambda: nn.ModuleList(Block(options.width, 8) for _ in range(options.layers)))
    leave = on_gpu(lambda: nn.Linear(options.width, options.classes))
    parameters = [weight for part in (enter, grow, blocks, leave) for weight in part.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4)
    for step in range(options.steps):
        with stalloc.step():
            length = skewed(draw, 8, 96)
            clips, side = max(1, options.frames // length), draw.choice([160, 192, 224, 256])
            piece = draw.choice([4, 8, 16])
            with torch.autocast("cuda", torch.bfloat16):
                rows = []
                for first in range(0, length, piece):
                    frames = clips * min(piece, length - first)
                    map_ = enter(values(frames, 3, side, side, dtype=torch.float32))[-1]
                    rows.append(grow(map_.flatten(2).transpose(1, 2)).unflatten(0, (clips, -1)))
                x = torch.cat(rows, 1).flatten(1, 2)
                for block in blocks:
                    x = block(x)
                loss = functional.cross_entropy(leave(x.mean(1)), tokens(options.classes, clips))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"step {step}: {clips} clips of {length} frames, {side} pixels")


if __name__ == "__main__":
    main()
