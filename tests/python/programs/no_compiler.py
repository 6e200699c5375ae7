"""Takes a step that no optimizer ends, for optimizers import a compiler themselves."""

import sys

import torch

import stalloc

torch.cuda.init()
with stalloc.step():
    torch.ones(1, device="cuda")
print("imported a compiler:", "torch._inductor" in sys.modules)
