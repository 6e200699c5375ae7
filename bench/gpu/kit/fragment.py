"""A job that fragments memory: a replay buffer of episodes of different lengths, from which each step draws some.

What is live never takes more than ten elevenths of the limit; what PyTorch's allocator must reserve for it is above.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import figures
import torch

MIB = 1 << 20
EPISODES, DRAWN = 24, 4
LONGEST = 64
SLACK = 1.1


def plan(steps: int) -> Iterator[tuple[int, int, list[int]]]:
    """For each step: which episode is replaced, by one of how many units, and which ones are drawn."""
    draw = random.Random(0)
    for _ in range(steps):
        yield draw.randrange(EPISODES), draw.randint(2, LONGEST), draw.sample(range(EPISODES), DRAWN)


def peak(steps: int) -> int:
    """Units that are live at once, at most."""
    lengths, most = [0] * EPISODES, 0
    for place, length, drawn in plan(steps):
        lengths[place] = 0
        lengths[place] = length
        most = max(most, sum(lengths) + sum(lengths[i] for i in drawn))
    return most


def main() -> None:
    options = figures.parser().parse_args()
    # All lengths are multiples of the unit.
    unit, steps = (21 * MIB, 120) if options.tiny else (24 * MIB, 400)
    torch.cuda.init()
    limit = int(SLACK * peak(steps) * unit)
    torch.cuda.set_per_process_memory_fraction(min(limit / torch.cuda.get_device_properties(0).total_memory, 1.0))
    found = {"oom": False, "limit": limit, "steps": 0, "wanted_steps": steps}
    episodes: list[torch.Tensor | None] = [None] * EPISODES
    try:
        for place, length, drawn in plan(steps):
            episodes[place] = None
            episodes[place] = torch.empty(length * unit, dtype=torch.uint8, device="cuda")
            parts = [episode for episode in (episodes[i] for i in drawn) if episode is not None]
            if parts:
                batch = torch.cat(parts)
                del batch
            found["steps"] += 1
    except torch.cuda.OutOfMemoryError as error:
        found.update(oom=True, message=str(error).splitlines()[0])
    figures.write(options.output, found)


if __name__ == "__main__":
    main()
