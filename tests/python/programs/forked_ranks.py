"""Forks its ranks before CUDA is used, as Lightning's ddp_fork and accelerate's notebook_launcher do: ``forked_ranks.py RANKS STEPS``."""

import os
import sys

import torch
import torch.multiprocessing

import stalloc


def train(rank: int, ranks: int, steps: int) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks))
    torch.cuda.set_device(rank)
    layers = [torch.randn(1000 + 100 * rank, 1000 + 100 * rank, device="cuda", requires_grad=True) for _ in range(6)]
    for _ in range(steps):
        with stalloc.step():
            x = torch.randn(64, 1000 + 100 * rank, device="cuda")
            for layer in layers:
                x = torch.relu(x @ layer)
            x.sum().backward()
            for layer in layers:
                layer.grad = None


if __name__ == "__main__":
    torch.multiprocessing.start_processes(train, (int(sys.argv[1]), int(sys.argv[2])), nprocs=int(sys.argv[1]), start_method="fork")
