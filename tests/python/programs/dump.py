"""Trains with PyTorch's memory history and dumps a snapshot to a path; prints what was reserved."""

import sys

import torch
from gpt_step import Trainer

torch.cuda.memory._record_memory_history(max_entries=100_000, context=None)
trainer = Trainer()
for _ in range(4):
    trainer.step()
torch.cuda.memory._dump_snapshot(sys.argv[1])
print(torch.cuda.max_memory_reserved())
