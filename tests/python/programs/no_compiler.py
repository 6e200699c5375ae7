"""Takes a step that begins before CUDA does, and that no optimizer ends: optimizers import a compiler themselves."""

import sys

import torch

import stalloc

with stalloc.step():
    stalloc.phase("forward", 3)
    torch.ones(1, device="cuda")
print("imported a compiler:", "torch._inductor" in sys.modules)
