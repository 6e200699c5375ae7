"""A stage in the middle of a pipeline, one forward one backward, whose inputs and outputs come and go on streams of their own."""

from collections import deque

import torch
from torch import Tensor, nn
from training import Block, on_gpu, skewed, start


def main() -> None:
    options, draw = start(__doc__, batch=2, width=2048, layers=6, micro_batches=8, after=3)
    blocks = on_gpu(lambda: nn.ModuleList(Block(options.width, options.width // 128) for _ in range(options.layers)), torch.bfloat16)
    optimizer = torch.optim.AdamW(blocks.parameters(), lr=1e-4)
    receives, sends = torch.cuda.Stream(), torch.cuda.Stream()
    here = torch.cuda.current_stream()

    def receive(length: int) -> Tensor:
        """What another stage sends."""
        with torch.cuda.stream(receives):
            came = torch.empty((options.batch, length, options.width), dtype=torch.bfloat16, device="cuda")
        here.wait_stream(receives)
        came.record_stream(here)
        return came

    def send(what: Tensor) -> None:
        sends.wait_stream(here)
        with torch.cuda.stream(sends):
            what.record_stream(sends)
            what.clone()

    for step in range(options.steps):
        lengths = [skewed(draw, 256, 3000) for _ in range(options.micro_batches)]
        under_way: deque[tuple[Tensor, Tensor]] = deque()

        def forward(length: int) -> None:
            given = receive(length).requires_grad_()
            x = given
            for block in blocks:
                x = block(x, causal=True)
            send(x.detach())
            under_way.append((given, x))

        def backward() -> None:
            given, out = under_way.popleft()
            out.backward(receive(out.shape[1]))
            send(given.grad)

        for number, length in enumerate(lengths):
            forward(length)
            if number >= options.after:
                backward()
        while under_way:
            backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: {lengths}")


if __name__ == "__main__":
    main()
