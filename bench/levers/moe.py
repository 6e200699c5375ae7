"""A mixture of experts, of which each token sees two."""

import sys

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, EXPERTS = 256, 8


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(WIDTH, 1024), nn.Linear(WIDTH, 1024), nn.Linear(1024, WIDTH)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.router, self.experts = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, EXPERTS), nn.ModuleList(Expert() for _ in range(EXPERTS))

    def forward(self, x):
        tokens = self.norm(x).flatten(0, 1)
        # Of a fixed capacity: what each expert gets are the tokens that weigh most for it.
        weights = self.router(tokens).softmax(-1)
        best, index = weights.topk(2 * len(tokens) // EXPERTS, dim=0)
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            out = out.index_add(0, index[:, number], expert(tokens[index[:, number]]) * best[:, number, None])
        return x + out.view_as(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layers, self.lm_head = nn.Embedding(4000, WIDTH), nn.ModuleList(Layer() for _ in range(4)), nn.Linear(WIDTH, 4000)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(x)


def train(model, optimizer, batch):
    for _step in range(12):
        text = torch.randint(4000, (batch, 257)).cuda()
        loss = F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


model = Model().cuda()
train(model, torch.optim.Adam(model.parameters(), lr=1e-4), int(sys.argv[1]))
