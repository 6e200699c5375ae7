"""A graph network on batches of molecules or meshes: the numbers of nodes and of edges are drawn anew for each batch.

Nearly every tensor of a step has one of the two numbers as its first size.
"""

import torch
from torch import Tensor, nn
from training import indices, on_gpu, start, values


class Pass(nn.Module):
    """Messages along edges, gathered at nodes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.message = nn.Sequential(nn.Linear(3 * width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.weight = nn.Sequential(nn.Linear(width, 1), nn.Sigmoid())
        self.update = nn.Sequential(nn.Linear(2 * width, width), nn.SiLU(), nn.Linear(width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, nodes: Tensor, edges: Tensor, ends: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        message = self.message(torch.cat([nodes[ends[0]], nodes[ends[1]], edges], 1))
        message = message * self.weight(message)
        gathered = torch.zeros_like(nodes).index_add(0, ends[1], message)
        return self.norm(nodes + self.update(torch.cat([nodes, gathered], 1))), edges + message


def main() -> None:
    options, draw = start(__doc__, graphs=32, width=256, layers=8)
    enter = on_gpu(lambda: nn.ModuleList([nn.Linear(16, options.width), nn.Linear(8, options.width)]))
    passes = on_gpu(lambda: nn.ModuleList(Pass(options.width) for _ in range(options.layers)))
    leave = on_gpu(lambda: nn.Linear(options.width, 1))
    optimizer = torch.optim.AdamW([*enter.parameters(), *passes.parameters(), *leave.parameters()], lr=1e-4)
    for step in range(options.steps):
        sizes = [int(draw.lognormvariate(5.5, 0.7)) + 8 for _ in range(options.graphs)]
        count = sum(sizes)
        links = sum(int(size * draw.uniform(6, 14)) for size in sizes)
        nodes = enter[0](values(count, 16, dtype=torch.float32))
        edges = enter[1](values(links, 8, dtype=torch.float32))
        ends = indices(count, links), indices(count, links)
        for layer in passes:
            nodes, edges = layer(nodes, edges, ends)
        belongs = torch.repeat_interleave(torch.arange(options.graphs), torch.tensor(sizes)).cuda()
        energy = torch.zeros(options.graphs, device="cuda").index_add(0, belongs, leave(nodes)[:, 0])
        energy.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: {count} nodes, {links} edges")


if __name__ == "__main__":
    main()
