"""Gradients that are reduced in buckets on a stream of their own while the backward pass goes on, as DDP does, compressed."""

import torch
from torch import Tensor
from training import Decoder, on_gpu, skewed, start, tokens


class Buckets:
    """Collects gradients as they come, and reduces a bucket once it is full."""

    def __init__(self, limit: int) -> None:
        self.limit, self.stream = limit, torch.cuda.Stream()
        self.waiting: list[Tensor] = []
        self.reduced: list[tuple[list[Tensor], Tensor]] = []

    def add(self, parameter: Tensor) -> None:
        self.waiting.append(parameter)
        if sum(each.numel() for each in self.waiting) >= self.limit:
            self.reduce()

    def reduce(self) -> None:
        if not self.waiting:
            return
        flat = torch.cat([each.grad.flatten() for each in self.waiting])
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            flat.record_stream(self.stream)
            small = flat.to(torch.bfloat16)
            self.reduced.append((self.waiting, (small / 8).float()))
        self.waiting = []

    def finish(self) -> None:
        self.reduce()
        torch.cuda.current_stream().wait_stream(self.stream)
        for parameters, flat in self.reduced:
            flat.record_stream(torch.cuda.current_stream())
            parts = flat.split([each.numel() for each in parameters])
            for parameter, part in zip(parameters, parts):
                parameter.grad.copy_(part.view_as(parameter))
        self.reduced = []


def main() -> None:
    options, draw = start(__doc__, batch=4, vocabulary=16000, width=1024, layers=12, limit=6_000_000)
    model = on_gpu(lambda: Decoder(options.vocabulary, options.width, options.width // 64, options.layers))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    buckets = Buckets(options.limit)
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(buckets.add)
    for step in range(options.steps):
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(tokens(options.vocabulary, options.batch, skewed(draw, 128, 2500)))
        loss.backward()
        buckets.finish()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}")


if __name__ == "__main__":
    main()
