"""Blocks of several streams, each filled with a number of its own that is read again before its end: is memory ever two tensors' at once.

The device is kept behind the host, so that what is freed is still in use there. All steps make the same requests, every seventh some
of its own too, and every twentieth others, as an evaluation does. Wrong values are counted on the device. --careless leaves out that other streams use a block, natively
an error that has to be found.
"""

from __future__ import annotations

import random

import figures
import torch

MIB = 1 << 20
STREAMS, REQUESTS, KEPT, AGES = 6, 500, 24, 6


class Job:
    def __init__(self, streams: int, careless: bool) -> None:
        self.streams = [torch.cuda.current_stream(), *(torch.cuda.Stream() for _ in range(streams - 1))]
        self.wrong = [torch.zeros((), dtype=torch.int64, device="cuda") for _ in self.streams]
        self.kept: list[tuple[torch.Tensor, int, int]] = []
        self.careless, self.number = careless, 0

    def begin(self, elements: int, on: int) -> tuple[torch.Tensor, int, int]:
        """A block that a stream fills with the next number."""
        self.number += 1
        with torch.cuda.stream(self.streams[on]):
            return torch.full((elements,), self.number, dtype=torch.int32, device="cuda"), self.number, on

    def look(self, entry: tuple[torch.Tensor, int, int], on: int) -> None:
        """A stream counts what in a block is not the block's number."""
        block, number, owner = entry
        if on != owner:
            self.streams[on].wait_stream(self.streams[owner])
            if not self.careless:
                block.record_stream(self.streams[on])
        with torch.cuda.stream(self.streams[on]):
            self.wrong[on] += (block != number).sum()

    def step(self, common: random.Random, own: random.Random | None) -> None:
        live: list[tuple[torch.Tensor, int, int]] = []
        for _ in range(REQUESTS):
            if own and own.random() < 0.03:
                self.look(self.begin(int(2 ** own.uniform(8, 24)), own.randrange(len(self.streams))), own.randrange(len(self.streams)))
            draw = common
            what, on = draw.random(), draw.randrange(len(self.streams))
            if what < 0.06:
                with torch.cuda.stream(self.streams[on]):
                    torch.cuda._sleep(draw.randrange(100_000, 2_000_000))
            elif what < 0.55 or not live:
                live.append(self.begin(int(2 ** draw.uniform(8, 24)), on))
            elif what < 0.75:
                self.look(draw.choice(live), on)
            else:
                entry = live.pop(draw.randrange(len(live)))
                self.look(entry, entry[2])
        self.kept.append(self.begin(common.randrange(MIB, 4 * MIB), 0))
        if len(self.kept) > KEPT:
            self.look(self.kept.pop(common.randrange(AGES)), 0)
        for entry in live:
            self.look(entry, entry[2])


def main() -> None:
    parser = figures.parser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--careless", action="store_true")
    options = parser.parse_args()
    options.steps = 4 if options.tiny else options.steps
    torch.cuda.init()
    job = Job(STREAMS, options.careless)
    weight = torch.nn.Parameter(torch.zeros(8, device="cuda"))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    found = {"oom": False, "steps": 0, "streams": STREAMS}
    try:
        for number in range(options.steps):
            job.step(random.Random(1 if number % 20 == 19 else 0), random.Random(number) if number % 7 == 6 else None)
            weight.sum().backward()
            optimizer.step()
            found["steps"] += 1
    except torch.cuda.OutOfMemoryError as error:
        found.update(oom=True, message=str(error).splitlines()[0])
    torch.cuda.synchronize()
    found.update(blocks=job.number, wrong=sum(int(each) for each in job.wrong))
    figures.write(options.output, found)


if __name__ == "__main__":
    main()
