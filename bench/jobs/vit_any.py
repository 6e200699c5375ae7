"""A vision transformer that takes each image at its own resolution, a drawn number of patches packed to sequences.

Images keep their aspect and size, and a share of their patches is dropped at random, so that no two batches are
alike.
"""

import torch
from torch import nn
from torch.nn import functional
from training import Block, on_gpu, start, tokens, values


def main() -> None:
    options, draw = start(__doc__, images=24, width=1024, layers=16, classes=1000)
    enter = on_gpu(lambda: nn.Linear(14 * 14 * 3, options.width))
    rows, columns = nn.Embedding(64, options.width).cuda(), nn.Embedding(64, options.width).cuda()
    blocks = on_gpu(lambda: nn.ModuleList(Block(options.width, options.width // 64) for _ in range(options.layers)))
    leave = on_gpu(lambda: nn.Linear(options.width, options.classes))
    parameters = [weight for part in (enter, rows, columns, blocks, leave) for weight in part.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4)
    for step in range(options.steps):
        shapes = [(draw.randint(10, 40), draw.randint(10, 40)) for _ in range(options.images)]
        kept = [max(16, int(height * width * draw.uniform(0.5, 1))) for height, width in shapes]
        with torch.autocast("cuda", torch.bfloat16):
            images = []
            for (height, width), count in zip(shapes, kept):
                patches = enter(values(count, 14 * 14 * 3, dtype=torch.float32))
                places = torch.randint(height * width, (count,))
                images.append(patches + rows((places // width).cuda()) + columns((places % width).cuda()))
            x = nn.utils.rnn.pad_sequence(images, batch_first=True)
            mask = (torch.arange(x.shape[1])[None] < torch.tensor(kept)[:, None])[:, None, None, :].cuda()
            for block in blocks:
                x = block(x, mask=mask)
            pooled = torch.stack([row[:count].mean(0) for row, count in zip(x, kept)])
            loss = functional.cross_entropy(leave(pooled), tokens(options.classes, options.images))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: {sum(kept)} patches, {max(kept)} in the longest")


if __name__ == "__main__":
    main()
