"""Trains a model of 10^9 parameters, sleeps and wakes between steps in every way; prints what is wrong."""

import gc
import json
import os
import resource
import sys
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.multiprocessing.reductions import reduce_tensor

import stalloc

wrong = []
MIB, GIB = 1 << 20, 1 << 30


def check(what, holds):
    if not holds:
        wrong.append(what)


def refused(kind, act):
    """The text of the exception that there has to be."""
    try:
        act()
    except kind as error:
        return str(error)
    return "nothing"


def used():
    free, total = torch.cuda.mem_get_info()
    return total - free


torch.cuda.init()
context = used()

if "solid" in sys.argv:
    kept = torch.ones(1000, device="cuda")
    check("a solid arena cannot sleep", "one allocation" in refused(RuntimeError, stalloc.sleep) and not stalloc.asleep())
    print(json.dumps({"wrong": wrong}))
    sys.exit()

with torch.device("cuda"):
    model = nn.Sequential(*(nn.Linear(10_000, 10_000, bias=False, dtype=torch.bfloat16) for _ in range(10)))
optimizer = torch.optim.AdamW(model.parameters())


def step():
    with stalloc.step():
        model(torch.ones(64, 10_000, dtype=torch.bfloat16, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


# What the stand-in knows of memory: a wrong byte is seen.
numbers, expected = [], []


def known(size):
    values = torch.arange(size) * (len(numbers) + 1)
    numbers.append(values.cuda())
    expected.append(values)


def is_whole():
    return all(torch.equal(one.cpu(), other) for one, other in zip(numbers, expected))


for turn in range(3):
    step()
    for size in (1, 70, 1000, 200_000):
        known(size)
        known(size)
        del numbers[-1], expected[-1]
check("numbers are known", is_whole())
static = torch.zeros(1 * MIB, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    result = (static + 1) * 2
for turn in range(2):
    step()
states = [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value) and value.is_cuda]
everything = [*model.parameters(), *states, *numbers, static, result]


def addresses():
    return [tensor.data_ptr() for tensor in everything]


before, held, requested = addresses(), torch.cuda.memory_reserved(), torch.cuda.memory_allocated()

slept = stalloc.sleep()
check(f"{used() - context} bytes are held", used() - context <= 2 * MIB)
check(f"{slept!r}", slept.bytes >= 6 * 10**9 and slept.host >= slept.bytes and slept.left.arena == 0 and slept.left.others == used())
check("figures are for JSON", json.loads(json.dumps(slept.to_dict()))["left"]["others"] == slept.left.others)
check("it is asleep", stalloc.asleep() and torch.cuda.memory_allocated() == requested and torch.cuda.memory_reserved() == 0)
check("the model refuses", "Linear is asleep" in refused(RuntimeError, lambda: model(torch.ones(1, 10_000, dtype=torch.bfloat16))))
check("and the optimizer", "AdamW is asleep" in refused(RuntimeError, optimizer.step))
others = torch.zeros(3 * MIB, device="cuda")
check("new tensors are PyTorch's", stalloc.memory_stats()["fallback_reserved"] > 0)
text = refused(torch.cuda.OutOfMemoryError, lambda: torch.empty(90 * GIB, dtype=torch.uint8, device="cuda"))
check(f"what runs out says who sleeps: {text}", "asleep" in text and "stalloc.wake()" in text)
hoard = torch.empty(79 * GIB - context, dtype=torch.uint8, device="cuda")
text = refused(torch.cuda.OutOfMemoryError, stalloc.wake)
check(f"a full card leaves all asleep: {text}", "call stalloc.wake() again" in text and stalloc.asleep())
del hoard
place = next(index for index, tensor in enumerate(everything) if tensor is numbers[2])
del numbers[2], expected[2], everything[place], before[place], others
woken = stalloc.wake(first=model)
check(f"{woken!r}", not stalloc.asleep() and slept.bytes * 0.99 < woken.bytes <= slept.bytes)
check("addresses stay", addresses() == before)
check("values stay", is_whole())
check(f"memory is what it was: {torch.cuda.memory_reserved()} of {held}", torch.cuda.memory_reserved() <= held)
torch.cuda.synchronize()
one = stalloc.memory_stats()
step()
graph.replay()
torch.cuda.synchronize()
other = stalloc.memory_stats()
# A plan that is learned meanwhile has addresses of its own.
check("the next step takes no memory", other["driver_calls"] == one["driver_calls"] or other["plans"] > one["plans"])
check("nothing is asleep twice", stalloc.wake().bytes == 0)

# Parts of it. What a graph may have written the stand-in does not know.
for one, other in zip(numbers, expected):
    one.copy_(other)
everything = [*model.parameters(), *states, *numbers, static, result]
before = addresses()
with stalloc.sleep(keep=model, discard=[optimizer, {"other": numbers[0]}]) as slept:
    check(f"the model stays: {slept!r}", 2 * 10**9 <= slept.left.arena < 2.6 * 10**9 and slept.bytes < GIB // 4)
    model(torch.ones(4, 10_000, dtype=torch.bfloat16, device="cuda"))
    check("its optimizer sleeps", "AdamW is asleep" in refused(RuntimeError, optimizer.step))
check("the end of the block wakes", not stalloc.asleep() and addresses() == before)
del numbers[0], expected[0]
check("what is not discarded is whole", is_whole())

# What cannot be.
with torch.cuda.graph(torch.cuda.CUDAGraph()):
    text = refused(RuntimeError, stalloc.sleep)
check(f"not in a capture: {text}", "captur" in text and not stalloc.asleep())
available = next(int(line.split()[1]) << 10 for line in open("/proc/meminfo") if line.startswith("MemAvailable:"))
if available < 60 * GIB:
    large = torch.empty(60 * GIB, dtype=torch.uint8, device="cuda")
    text = refused(MemoryError, stalloc.sleep)
    check(f"not without memory of the host: {text}", "the host has no" in text and not stalloc.asleep() and is_whole())
    del large
os.environ["NCCL_GRAPH_REGISTER"] = "1"
check("no group, so nothing is registered", stalloc.sleep().bytes > 0 and stalloc.wake().bytes > 0)
torch.distributed.init_process_group("nccl", store=torch.distributed.HashStore(), rank=0, world_size=1)
text = refused(RuntimeError, stalloc.sleep)
check(f"not with graphs that NCCL may know: {text}", "NCCL_GRAPH_REGISTER=0" in text and not stalloc.asleep())
del os.environ["NCCL_GRAPH_REGISTER"]
check("names are of something", "int is no module" in refused(TypeError, lambda: stalloc.sleep(keep=3)))

# In a thread, while this one computes.
with ThreadPoolExecutor(1) as thread:
    sleeping = thread.submit(stalloc.sleep)
    check("Python goes on", sum(range(1000)) == 499_500 and sleeping.result().bytes > 0)
    waking = thread.submit(stalloc.wake, first=model)
    values = [values.sum().item() for values in expected]
    check("it is whole once that is done", waking.result().bytes > 0 and is_whole() and len(values) == len(numbers))

# For long.
gc.collect()
torch.cuda.empty_cache()
first = stalloc.sleep()
stalloc.wake()
held, resident = used(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(1000):
    slept = stalloc.sleep()
    stalloc.wake()
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident
check(f"{slept!r} after {first!r}", (slept.bytes, slept.host, used()) == (first.bytes, first.host, held))
check(f"{grown} KiB more", grown < 64 << 10)
check("values are what they were", is_whole())

# What was shared once may be another process's for ever.
reduce_tensor(numbers[0])
text = refused(RuntimeError, stalloc.sleep)
check(f"not while shared: {text}", f"{numbers[0].data_ptr():#x} is shared" in text and not stalloc.asleep())
print(json.dumps({"wrong": wrong}))
