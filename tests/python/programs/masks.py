"""Sizes that hang on masks: one that follows from what the host gave, with millions of elements, and one that nobody knows."""

import sys

import torch

rows, width = int(sys.argv[1]), 4200


def assign(device):
    generator = torch.Generator().manual_seed(3)
    points = (torch.rand(width, 2, generator=generator) * 640).to(device)
    low = (torch.rand(rows, 1, 2, generator=generator) * 600).to(device)
    deltas = torch.cat((points[None] - low, low + 40 - points[None]), dim=-1)
    inside = deltas.amin(-1).gt_(1e-9).bool()
    positive = inside & ((points > low).all(-1) | torch.zeros(rows, width, dtype=torch.bool, device=device))
    per_point = positive.sum(0)
    first = inside.float().mul_(2).argmax(0) * (per_point > 1)
    return [
        *(len(chosen) for chosen in (positive.nonzero(), torch.masked_select(positive, inside), positive.unique(dim=1), torch.where(inside)[0])),
        *(per_point.max().item(), positive.any().item(), first.sum().item(), inside.sum().item(), positive[7].sum().item()),
    ]


host, device = assign("cpu"), assign("cuda")
print("known", "same" if host == device else f"{host} but {device}", host[0], flush=True)
boxes = torch.rand(1000, 16384, device="cuda")
chosen = boxes[torch.rand(1000, device="cuda") > boxes[:, 0]]  # guessed
print("guessed", len(chosen))
