"""Recommendation: each example has any number of items in each field, summed from large tables with sparse gradients.

How many rows of a table a step touches, and so the size of its gradient, is drawn anew for every field.
"""

import torch
from torch import nn
from torch.nn import functional
from training import indices, on_gpu, start, values


def main() -> None:
    options, draw = start(__doc__, batch=16384, fields=40, rows=1000000, width=128)
    sizes = [options.rows >> (field % 5) for field in range(options.fields)]
    tables = nn.ModuleList(nn.EmbeddingBag(size, options.width, mode="sum", sparse=True, device="cuda") for size in sizes)
    bottom = on_gpu(lambda: nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, options.width), nn.ReLU()))
    pairs = (options.fields + 1) * options.fields // 2
    layers = [nn.Linear(pairs + options.width, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1)]
    top = nn.Sequential(*layers).cuda()
    dense = torch.optim.AdamW([*bottom.parameters(), *top.parameters()], lr=1e-4)
    sparse = torch.optim.SGD(tables.parameters(), lr=0.01)
    first, second = (places.cuda() for places in torch.triu_indices(options.fields + 1, options.fields + 1, 1))
    for step in range(options.steps):
        counts = [int(options.batch * draw.uniform(1, 3 + field)) for field in range(options.fields)]
        found = [bottom(values(options.batch, 13, dtype=torch.float32))]
        for table, size, count in zip(tables, sizes, counts):
            offsets = (torch.arange(options.batch) * (count // options.batch)).cuda()
            found.append(table(indices(size, count), offsets))
        stacked = torch.stack(found, 1)
        crossed = (stacked @ stacked.transpose(1, 2))[:, first, second]
        logits = top(torch.cat([found[0], crossed], 1))[:, 0]
        loss = functional.binary_cross_entropy_with_logits(logits, values(options.batch, dtype=torch.float32))
        loss.backward()
        dense.step()
        sparse.step()
        dense.zero_grad()
        sparse.zero_grad()
        print(f"step {step}: {sum(counts)} items")


if __name__ == "__main__":
    main()
