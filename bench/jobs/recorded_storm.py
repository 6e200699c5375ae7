"""Hundreds of tensors a step that several streams use: a head for each of many tasks, on one of a few streams."""

import torch
from torch import nn
from training import on_gpu, start, values


def main() -> None:
    options, draw = start(__doc__, batch=64, width=1024, heads=48, streams=6)
    trunk = on_gpu(lambda: nn.Sequential(nn.Linear(options.width, options.width), nn.GELU(), nn.Linear(options.width, options.width)))
    heads = on_gpu(lambda: nn.ModuleList(nn.Linear(options.width, 10 + 7 * number) for number in range(options.heads)))
    optimizer = torch.optim.AdamW([*trunk.parameters(), *heads.parameters()], lr=1e-4)
    streams = [torch.cuda.Stream() for _ in range(options.streams)]
    here = torch.cuda.current_stream()
    for step in range(options.steps):
        shared = trunk(values(options.batch * draw.randint(8, 64), options.width, dtype=torch.float32))
        losses = []
        for number, head in enumerate(heads):
            stream = streams[number % len(streams)]
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                some = shared[: draw.randint(16, len(shared))]
                found = head(some)
                found.record_stream(here)
                shared.record_stream(stream)
                losses.append(found.float().square().mean())
        for stream in streams:
            here.wait_stream(stream)
        torch.stack(losses).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: {len(shared)}")


if __name__ == "__main__":
    main()
