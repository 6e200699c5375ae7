"""A trunk that is captured once and replayed, and heads on inputs of drawn sizes that run eagerly on the same stream."""

import torch
from torch import nn
from training import Block, on_gpu, skewed, start, values


def main() -> None:
    options, draw = start(__doc__, batch=4, width=1024, layers=6, length=1024)
    trunk = on_gpu(lambda: nn.Sequential(*(Block(options.width, options.width // 64) for _ in range(options.layers))))
    head = on_gpu(lambda: nn.Sequential(Block(options.width, 16), nn.Linear(options.width, 4000)))
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-4)
    given = torch.empty((options.batch, options.length, options.width), device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.no_grad():
        trunk(given)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        found = trunk(given)
    for step in range(options.steps):
        with torch.cuda.stream(side):
            given.copy_(values(options.batch, options.length, options.width, dtype=torch.float32))
        torch.cuda.current_stream().wait_stream(side)
        graph.replay()
        length = skewed(draw, 64, options.length)
        loss = head(found[:, :length].clone()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        side.wait_stream(torch.cuda.current_stream())
        print(f"step {step}: {length}")


if __name__ == "__main__":
    main()
