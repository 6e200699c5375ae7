"""A workspace that grows with each length, next to small results that are kept: what it leaves is too small for the next."""

import torch

results = []
for length in range(1, 60):
    workspace = torch.empty((80 + 40 * length) << 20, dtype=torch.uint8, device="cuda")  # named
    results.append(torch.empty(10 << 20, dtype=torch.uint8, device="cuda"))
    del workspace
