"""Pinned memory in every way that programs use it; prints what was wrong and what was held, as JSON.

``pinned.py [SEED]``: blocks of random sizes are copied from and to two streams, given back while copies may still run, and asked for again;
a data loader pins what it loads; the figures of PyTorch are looked at; and a graph is captured meanwhile.
"""

import json
import os
import random
import sys
import threading

import torch
from torch.utils.data import DataLoader, TensorDataset

MIB = 1 << 20
wrong = []
draw = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
live = 0  # bytes that this program has
peak = 0
counts = threading.Lock()


def check(is_so, what):
    if not is_so:
        wrong.append(what)


def stats():
    """As newer versions of PyTorch name them."""
    found = torch.cuda.host_memory_stats()
    old = {"active_requests": "allocation", "active_bytes": "allocated_bytes", "allocations": "segment", "allocated_bytes": "reserved_bytes"}
    is_old = "segment.current" in found
    names = old if is_old else {name: name for name in old}
    return {f"{new}.{kind}": found[f"{name}.{kind}"] for new, name in names.items() for kind in ("current", "peak", "allocated", "freed")}


class Block:
    """A pinned tensor that this program counts."""

    def __init__(self, size):
        global live, peak
        self.tensor = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        self.size = size
        check(self.tensor.is_pinned() and self.tensor[size // 2 :].is_pinned(), "a block is not pinned")
        check(self.tensor.data_ptr() % 4096 == 0, "a block does not begin with a page")
        with counts:
            live += size
            peak = max(peak, live)

    def free(self):
        global live
        del self.tensor
        with counts:
            live -= self.size


def copies():
    """Blocks are given back at once after copies that nobody waits for."""
    streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    device = torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
    blocks = []
    for _ in range(400):
        act = draw.randrange(10)
        if act < 4 or not blocks:
            blocks.append(Block(draw.choice([1000, 70_000, 300_000, MIB + 1, 3 * MIB])))
        elif act < 8:
            block = draw.choice(blocks)
            with torch.cuda.stream(draw.choice(streams)):
                part = block.tensor[block.size // 3 :]  # an address inside of the block
                if act < 6:
                    device[: part.numel()].copy_(part, non_blocking=True)
                else:
                    part.copy_(device[: part.numel()], non_blocking=True)
        else:
            blocks.pop(draw.randrange(len(blocks))).free()
    return blocks


def figures():
    torch.cuda.synchronize()
    torch._C._host_emptyCache()
    torch.cuda.reset_peak_host_memory_stats()
    torch.cuda.reset_accumulated_host_memory_stats()
    before = stats()
    blocks = [Block(5 * MIB + 4096), Block(3 * MIB)]
    now = stats()
    check(now["active_requests.current"] == before["active_requests.current"] + 2, f"active requests: {before} {now}")
    check(now["active_requests.allocated"] == 2, "requests are not counted from the reset on")
    grown = now["active_bytes.current"] - before["active_bytes.current"]
    check(8 * MIB + 4096 <= grown, f"active bytes grew by {grown}")
    check(now["allocated_bytes.current"] >= now["active_bytes.current"], "what is active is not held")
    check(now["allocated_bytes.peak"] >= now["allocated_bytes.current"], "the peak is below what is held")
    for block in blocks:
        block.free()
    freed = stats()
    check(freed["active_requests.current"] == before["active_requests.current"], "a request is still active")
    check(freed["active_bytes.peak"] == now["active_bytes.peak"], "the peak went")
    torch._C._host_emptyCache()
    torch.cuda.reset_peak_host_memory_stats()
    emptied = stats()
    check(emptied["allocated_bytes.current"] <= before["allocated_bytes.current"], f"kept: {before} {emptied}")
    check(emptied["active_bytes.peak"] == emptied["active_bytes.current"], "the peak was not reset")
    return grown


def loader():
    data = TensorDataset(torch.arange(60_000).reshape(300, 200), torch.arange(300))
    for _ in range(2):
        seen = [(x.is_pinned(), int(y[0])) for x, y in DataLoader(data, batch_size=30, pin_memory=True, num_workers=2)]
        check(seen == [(True, first) for first in range(0, 300, 30)], f"the loader gave {seen}")


def values():
    """What is written into blocks that lie next to each other stays there."""
    blocks = [torch.full((draw.randrange(1, 9000),), n, dtype=torch.int32).pin_memory() for n in range(100)]
    del blocks[::3]
    kept = {int(block[0]): block for block in blocks}
    more = [torch.full((2000,), -1, dtype=torch.int32).pin_memory() for _ in range(60)]
    check(all(bool((block == n).all()) for n, block in kept.items()), "a block was written by another")
    check(all(bool((block == -1).all()) for block in more), "a block was written by another")


def capture():
    """While a graph is captured, pinned memory is asked for, and given back."""
    source = Block(MIB)
    device = torch.zeros(MIB, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        device.copy_(source.tensor, non_blocking=True)
        inside = torch.empty(MIB, dtype=torch.uint8, pin_memory=True)
        inside.copy_(device, non_blocking=True)
    graph.replay()
    torch.cuda.synchronize()
    source.free()
    after = Block(MIB)
    check(after.tensor.data_ptr() != inside.data_ptr(), "what a graph writes to is handed out")
    after.free()


def history():
    if "record_pinned_host_memory" not in str(torch.cuda.memory._record_memory_history.__doc__):
        return
    torch.cuda.memory._record_memory_history(record_pinned_host_memory=True)
    block = torch.empty(12345, dtype=torch.uint8, pin_memory=True)
    address = block.data_ptr()
    found = json.dumps(torch.cuda.memory._snapshot(), default=str)
    check(str(address) in found, "the history does not have the block")
    del block
    torch.cuda.memory._record_memory_history(enabled=None)


def fork():
    """A child leaves its parent's memory as it is."""
    block = torch.full((1000,), 7, dtype=torch.int32).pin_memory()
    child = os.fork()
    if child == 0:
        is_right = bool((block == 7).all())
        del block
        os._exit(0 if is_right else 3)
    check(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, "a child ends otherwise")
    check(bool((block == 7).all()), "a child changed its parent's block")


def out_of_memory():
    """More than there is: PyTorch's own exception."""
    try:
        torch.empty(1 << 47, dtype=torch.uint8, pin_memory=True)
        return "none"
    except RuntimeError as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"


torch.cuda.init()
left = copies()
others = [threading.Thread(target=copies) for _ in range(3)]
[thread.start() for thread in others]
[thread.join() for thread in others]
while left:
    left.pop().free()
values()
loader()
grown = figures()
capture()
history()
fork()
said = out_of_memory()
again = Block(MIB)
again.free()
torch.cuda.synchronize()
print(json.dumps({"wrong": wrong, "grown": grown, "out_of_memory": said}))
