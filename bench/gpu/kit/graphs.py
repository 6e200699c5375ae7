"""Captures training steps in a CUDA graph, replays them between other allocations, and compares the weights with those of the same steps without a graph."""

from __future__ import annotations

import os

import figures
import torch
from torch import nn


def run(width: int, steps: int, graphed: bool) -> list[str]:
    """Losses and the sum of the weights, to the bit."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    text = torch.zeros(64, width, device="cuda")
    generator = torch.Generator().manual_seed(1)

    def step() -> torch.Tensor:
        loss = (model(text) - text).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    graph, loss = None, text.sum()
    if graphed:
        side = torch.cuda.Stream()
        kept = [parameter.detach().clone() for parameter in model.parameters()]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = step()
        with torch.no_grad():  # as they were before the steps that a capture needs
            for parameter, value in zip(model.parameters(), kept):
                parameter.copy_(value)
    seen = []
    for number in range(steps):
        text.copy_(torch.rand(64, width, generator=generator))
        if graph is None:
            loss = step()
        else:
            graph.replay()
        # What the graph reads and writes must be nobody else's.
        others = [torch.full((width, width), float(number), device="cuda") for _ in range(4)]
        seen.append(float(loss.item()).hex())
        del others
    seen.append(float(sum(parameter.detach().double().sum() for parameter in model.parameters())).hex())
    return seen


def main() -> None:
    options = figures.parser().parse_args()
    width, steps = (64, 3) if options.tiny else (1024, 50)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True, warn_only=True)
    eager, graphed = run(width, steps, False), run(width, steps, True)
    figures.write(options.output, {"steps": steps, "eager": eager, "graphed": graphed, "same": eager == graphed})


if __name__ == "__main__":
    main()
