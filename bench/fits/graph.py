"""Messages along the edges of a large graph, gathered at its nodes."""

import torch
from torch import nn

NODES, EDGES, WIDTH, LAYERS, STEPS = 40_000, 240_000, 256, 6, 12


def mlp(before, after):
    return nn.Sequential(nn.Linear(before, after), nn.SiLU(), nn.Linear(after, after))


class MessagePassing(nn.Module):
    def __init__(self):
        super().__init__()
        self.message, self.update, self.norm = mlp(3 * WIDTH, WIDTH), mlp(2 * WIDTH, WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, nodes, edges, source, target):
        messages = self.message(torch.cat([nodes[source], nodes[target], edges], dim=-1))
        gathered = torch.zeros_like(nodes).index_add_(0, target, messages)
        return nodes + self.norm(self.update(torch.cat([nodes, gathered], dim=-1))), edges + messages


class GraphNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.nodes, self.edges = nn.Linear(16, WIDTH), nn.Linear(4, WIDTH)
        self.layers = nn.ModuleList(MessagePassing() for _ in range(LAYERS))
        self.out = mlp(WIDTH, 3)

    def forward(self, nodes, edges, source, target):
        nodes, edges = self.nodes(nodes), self.edges(edges)
        for layer in self.layers:
            nodes, edges = layer(nodes, edges, source, target)
        return self.out(nodes)


def train():
    model = GraphNet().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for _step in range(STEPS):
        batch = torch.randn(NODES, 16), torch.randn(EDGES, 4), torch.randint(NODES, (EDGES,)), torch.randint(NODES, (EDGES,))
        loss = nn.functional.mse_loss(model(*(part.cuda() for part in batch)), torch.randn(NODES, 3, device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    train()
