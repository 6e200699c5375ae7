"""Trains and asks for everything that PyTorch asks an allocator for; prints the losses if it got to its end.

What is wrong on the way is not looked at: it is run while stalloc is made to fail.
"""

import gc
import json

import torch
from gpt_step import Trainer

trainer = Trainer()
losses = [trainer.step() for _ in range(3)]
torch.cuda.memory._record_memory_history(max_entries=10000, context=None)
side = torch.cuda.Stream()
kept = []
for step in range(4):
    kept.append(torch.empty(12345 * (step + 1), device="cuda"))
    kept[-1].record_stream(side)
    torch.cuda.memory_stats()
    torch.cuda.memory_snapshot()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    del kept[::2]
    torch.cuda.empty_cache()
    losses.append(trainer.step())
    try:
        torch.empty(200 << 30, dtype=torch.uint8, device="cuda")
        raise AssertionError("there is no such memory")
    except torch.OutOfMemoryError:
        pass
    graph = torch.cuda.CUDAGraph()
    static = torch.zeros(1000, device="cuda")
    with torch.cuda.graph(graph):
        result = static * 2
    graph.replay()
    del graph, result
    gc.collect()
torch.cuda.memory._snapshot()
torch.cuda.memory._record_memory_history(enabled=None)
torch.cuda.set_per_process_memory_fraction(0.9)
losses.append(trainer.step())
print(json.dumps({"losses": len(losses)}))
