"""Forks its ranks before CUDA is used, as Lightning's ddp_fork and accelerate's notebook_launcher do: ``forked_ranks.py RANKS STEPS``.

``learned`` for STEPS: until most of a rank's requests are at planned offsets, however busy the machine is.
"""

import os
import sys
import time

import torch
import torch.multiprocessing

import stalloc


def is_learned() -> bool:
    figures = stalloc.memory_stats()
    return 2 * figures["planned"] > figures["requests"]


def train(rank: int, ranks: int, steps: str, all_done) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks))
    torch.cuda.set_device(rank)
    layers = [torch.randn(1000 + 100 * rank, 1000 + 100 * rank, device="cuda", requires_grad=True) for _ in range(6)]
    for _ in range(3_000 if steps == "learned" else int(steps)):
        if steps == "learned" and is_learned():
            break
        with stalloc.step():
            x = torch.randn(64, 1000 + 100 * rank, device="cuda")
            for layer in layers:
                x = torch.relu(x @ layer)
            x.sum().backward()
            for layer in layers:
                layer.grad = None
        if steps == "learned":
            time.sleep(0.01)  # autograd's thread gives back what it still holds: each step is the same, however busy the machine is
    all_done.wait()  # the first rank sums up for all, and waits for none that has far to go


if __name__ == "__main__":
    ranks = int(sys.argv[1])
    all_done = torch.multiprocessing.get_context("fork").Barrier(ranks, timeout=500)
    torch.multiprocessing.start_processes(train, (ranks, sys.argv[2], all_done), nprocs=ranks, start_method="fork")
