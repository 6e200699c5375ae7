"""Programs that read fractions which a dry run does not know, and go on only if those are what a training gives."""

import math

import torch
from torch import distributions

x = torch.randn(300, device="cuda")
loss = x.square().mean()
print("loss", math.log(loss.item()) < 0, 1 / loss.item() < 100, loss.item() in (0.0, 1.0))
for dtype in (torch.float16, torch.bfloat16, torch.float64):
    print("types", x.to(dtype).sum().item())
scores = (x + 1).cpu()
print("scores", len(set(scores.tolist())), bool(torch.isfinite((scores - scores.min()) / (scores.max() - scores.min())).all()))
print("again", torch.equal(scores, (x * 2).cpu()), bool(torch.ones(300, device="cuda").cpu().eq(1).all()))
# A check of one element is a copy, and what follows from a check holds too.
distributions.Categorical(x.softmax(-1)).sample()
norm = x.norm()
print("norm", bool(norm > 1e-10), bool(norm > 10), bool(norm == 0), bool(norm != norm), bool(torch.isfinite(norm) & torch.isfinite(2 * norm)))
holds = ((x.sum() < 5) & (x.square() < 9).all()).all()
print("check", bool(holds), bool(~holds), bool(holds & torch.ones((), dtype=torch.bool, device="cuda")))
steps = 0
while loss.item() > 1e-4:  # waits
    steps += 1
print("steps", steps)
