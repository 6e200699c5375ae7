"""Blocks of GRU cells, which on the CPU change in place what their products gave."""

import torch
from nets import values
from torch import nn


class Message(nn.Module):
    def __init__(self):
        super().__init__()
        self.send, self.take = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 8)), nn.GRUCell(8, 8)

    def forward(self, x, pairs):
        sent = self.send(torch.cat([x[pairs[0]], x[pairs[1]]], -1))
        return self.take(torch.zeros_like(x).index_add(0, pairs[1], sent), x)


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.mean = nn.ModuleList(Message() for _ in range(3)), nn.Linear(8, 1)

    def forward(self, x, pairs):
        for layer in self.layers:
            x = layer(x, pairs)
        return self.mean(x)


torch.manual_seed(0)
model = Graph()
optimizer = torch.optim.RAdam(model.parameters(), lr=1e-2)
losses = []
for _ in range(4):
    loss = model(torch.randn(6, 8), torch.randint(6, (2, 20))).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
RESULT = values(losses, model, optimizer)
