"""An embedding of many rows of which a batch reads a few: its gradient is dense."""
import torch

table = torch.nn.Embedding(1_700_000, 64).cuda()
head = torch.nn.Linear(64, 1).cuda()
optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1)
for step in range(10):
    ids = torch.randint(0, 1000, (256, 8), device="cuda")
    head(table(ids).mean(1)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
