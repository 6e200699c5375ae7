"""Futures that keep their results; the first that fails is what the program ends with, and more fail after it."""

from concurrent.futures import ThreadPoolExecutor
import torch
from torch import nn

net = nn.Linear(1024, 1024).cuda().requires_grad_(False)

def work(seed):
    return net(torch.randn(1024, 1024, device="cuda"))  # named

def main():
    futures = []
    with ThreadPoolExecutor(1) as pool:
        for seed in range(400):
            futures.append(pool.submit(work, seed))
    return sum(future.result().mean().item() for future in futures)

main()
