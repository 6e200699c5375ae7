"""A small model with a long vocabulary: logits of all positions, and their softmax, are larger than everything else."""

import torch
from torch import nn

embedding = nn.Embedding(64_000, 128).cuda()
body = nn.Sequential(*(nn.Linear(128, 128) for _ in range(4))).cuda()
head = nn.Linear(128, 64_000, bias=False).cuda()
optimizer = torch.optim.SGD([*embedding.parameters(), *body.parameters(), *head.parameters()], lr=0.1)
for _ in range(4):
    tokens = torch.zeros(2, 800, dtype=torch.long, device="cuda")
    logits = head(body(embedding(tokens)))  # named
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
