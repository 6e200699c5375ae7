"""Trains under a plan and asks PyTorch everything that it can say about memory; prints what is wrong with the answers."""

import json
import time

import torch
from gpt_step import Trainer

import stalloc

wrong = []


def check(what, holds):
    if not holds:
        wrong.append(what)


trainer = Trainer()
for _ in range(4):
    trainer.step()
allocated = torch.cuda.memory_allocated()
live = torch.empty(1 << 20, device="cuda")
check("an allocation is counted", torch.cuda.memory_allocated() == allocated + (4 << 20))
del live
check("a free is counted", torch.cuda.memory_allocated() == allocated)
check("reserved covers allocated", torch.cuda.memory_reserved() >= torch.cuda.memory_allocated())
check("peak covers current", torch.cuda.max_memory_allocated() >= allocated)
torch.cuda.reset_peak_memory_stats()
check("peaks are reset", torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated())
check("a summary is written", "Allocated memory" in torch.cuda.memory_summary())
check("the backend is native", torch.cuda.get_allocator_backend() == "native")

torch.cuda.memory._record_memory_history(max_entries=10000)
begin = time.time()
if hasattr(torch.cuda.memory, "_annotate_tensor"):
    torch.cuda.memory._annotate_tensor(next(trainer.model.parameters()), "the first weight")
    torch.cuda.memory._set_memory_metadata("said by the program")
with_stack = torch.empty(1000, device="cuda")  # here
trainer.step()
snapshot = torch.cuda.memory._snapshot()
blocks = [block for segment in snapshot["segments"] for block in segment["blocks"] if block["state"] == "active_allocated"]
check("a snapshot holds every live byte", sum(block["size"] for block in blocks) == torch.cuda.memory_allocated())
trace = snapshot["device_traces"][0]
check("the history holds the step", sum(entry["action"] == "alloc" for entry in trace) > 100)
check("the history is in order", all(a["time_us"] <= b["time_us"] for a, b in zip(trace, trace[1:])))
check("and of this time", all(begin - 1 < entry["time_us"] / 1e6 < time.time() + 1 for entry in trace))
(block,) = [block for block in blocks if block["address"] == with_stack.data_ptr()]
check("a block knows where it was made", any("served.py" in frame["filename"] for frame in block["frames"]))
if hasattr(torch.cuda.memory, "_annotate_tensor"):
    check("what is said of a tensor is kept", trace[0]["user_metadata"] == "the first weight")
    check("and what is said of all", "said by the program" in {entry["user_metadata"] for entry in trace[1:]})
torch.cuda.memory._record_memory_history(enabled=None)

graph = torch.cuda.CUDAGraph()
static = torch.zeros(1000, device="cuda")
with torch.cuda.graph(graph):
    result = static * 2
graph.replay()
check("a graph keeps its result", result.shape == (1000,))
pool = torch.cuda.MemPool()
with torch.cuda.use_mem_pool(pool):
    pooled = torch.empty(1 << 20, device="cuda")
check("a pool holds its tensors", any(segment["segment_pool_id"] != (0, 0) for segment in torch.cuda.memory_snapshot()))

try:
    torch.empty(1 << 40, device="cuda")
    check("too much is refused", False)
except torch.cuda.OutOfMemoryError as error:
    check("the text is PyTorch's", "CUDA out of memory" in str(error))
    live, unit = torch.cuda.memory_allocated(), "MiB" if torch.cuda.memory_allocated() <= 1 << 30 else "GiB"
    check("it has what tensors use", f"{live / (1 << (20 if unit == 'MiB' else 30)):.2f} {unit} is allocated by PyTorch" in str(error))
    check("it advises nothing that changes nothing here", "expandable_segments" not in str(error))
handle = next(trainer.model.parameters()).untyped_storage()._share_cuda_()[1]
check("a tensor of the arena is shared as one of an expandable segment", handle[1:2] == b"e")
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
    profiled = torch.empty(1 << 20, device="cuda")
check("the profiler sees memory", any(event.device_memory_usage >= 4 << 20 for event in profile.events()))
del profiled
trainer.step()
torch.cuda.empty_cache()
trainer.step()
figures = stalloc.memory_stats()
check("figures are ours", figures["peak_reserved"] > 0 and figures["efficiency"] > 0)
print(json.dumps({"planned": figures["planned"], "wrong": wrong}))
