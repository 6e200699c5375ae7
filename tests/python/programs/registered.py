"""Memory that libraries want to know: pools with NCCL's allocator, registered with a communicator, and symmetric memory. Prints what came of each.

``registered.py early`` or ``late`` has one communicator and no pools, which is made before or after the first tensor.
"""

import ctypes
import json
import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist

MIB = 1 << 20
stalloc = sys.modules.get("stalloc") if os.environ.get("SLEEPS") else None
found = {}
kept = []  # while pools have memory of it


def outcome(name, act):
    """What came of it: its answer, or the exception."""
    try:
        found[name] = act()
    except Exception as error:
        found[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"


def registered():
    """What the stand-in's NCCL has registered: where it begins and ends."""
    text = ctypes.create_string_buffer(1 << 16)
    ctypes.CDLL(None).stalloc_dryrun_summary(text, ctypes.c_size_t(len(text)))
    return sorted([address, address + size] for address, size in json.loads(text.value)["registered"])


def lies_in(tensor, ranges):
    end = tensor.data_ptr() + tensor.nbytes
    return any(start <= tensor.data_ptr() and end <= stop for start, stop in ranges)


SOURCE = """
#include <dlfcn.h>
#include <cstddef>
#include <cstdio>
extern "C" void* take(size_t bytes, int, void*) {
  void* address = nullptr;
  auto alloc = reinterpret_cast<int (*)(void**, size_t)>(dlsym(RTLD_DEFAULT, "ncclMemAlloc"));
  return alloc != nullptr && alloc(&address, bytes) == 0 ? address : nullptr;
}
extern "C" void give(void* address, size_t, int, void*) {
  if (auto free = reinterpret_cast<int (*)(void*)>(dlsym(RTLD_DEFAULT, "ncclMemFree"))) free(address);
}
"""


def allocator(folder):
    """NCCL's allocator, as Megatron makes it: `backend.mem_allocator` wants a GPU with multicast."""
    source, library = os.path.join(folder, "pool.cpp"), os.path.join(folder, "pool.so")
    with open(source, "w") as file:
        file.write(SOURCE)
    subprocess.run(["g++", "-shared", "-fPIC", source, "-o", library, "-ldl"], check=True)
    return torch.cuda.memory.CUDAPluggableAllocator(library, "take", "give").allocator()


def pool(backend, folder):
    """Tensors of a pool with NCCL's allocator, used in a collective, registered and let go."""
    kept.append(allocator(folder))
    made = torch.cuda.MemPool(kept[-1])
    before = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
    with torch.cuda.use_mem_pool(made):
        inside = torch.ones(3 * MIB, device="cuda")
        nested = [torch.ones(1000, device="cuda") for _ in range(10)]
    after = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
    segments = made.snapshot()
    addresses = sorted([segment["address"], segment["address"] + segment["total_size"]] for segment in segments)
    tensors, others = [inside, *nested], [before, after]
    answer = {"inside": [lies_in(tensor, addresses) for tensor in tensors], "outside": [lies_in(tensor, addresses) for tensor in others]}
    answer["uses"] = made.use_count()
    backend.allreduce([inside]).wait()  # makes the communicator
    backend.register_mem_pool(made)
    answer["registered"] = registered() == addresses
    if stalloc is not None:  # what is registered stays, with its contents
        slept = stalloc.sleep()
        answer["slept"] = [registered() == addresses, slept.left.pytorch >= sum(end - start for start, end in addresses), bool(inside.sum() > 0)]
        stalloc.wake()
    with torch.cuda.use_mem_pool(made):
        later = torch.ones(7 * MIB, device="cuda")
    answer["later"] = [len(registered()) - len(addresses), lies_in(later, registered())]
    backend.allreduce([inside, later][:1]).wait()
    torch.cuda.synchronize()
    backend.deregister_mem_pool(made)
    answer["left"] = registered()
    del later
    del inside, nested
    torch.cuda.empty_cache()
    return answer


def symmetric():
    import torch.distributed._symmetric_memory as memory

    tensor = memory.empty(2 * MIB, dtype=torch.float32, device="cuda")
    other = torch.empty(2 * MIB, dtype=torch.float32, device="cuda")
    tensor.copy_(other)
    torch.cuda.synchronize()
    return [tensor.numel(), tensor.data_ptr() != other.data_ptr()]


def communicator(backend, is_early):
    """Tensors and what is registered, with one communicator."""
    first = None if is_early else torch.ones(3 * MIB, device="cuda")
    if is_early:
        backend.eager_connect_single_device(torch.device("cuda:0"))
    else:
        backend.allreduce([first]).wait()
    tensors = [torch.ones(size, device="cuda") for size in (10, 100_000, 5 * MIB, 30 * MIB)]
    for tensor in tensors:
        backend.allreduce([tensor]).wait()
    torch.cuda.synchronize()
    ranges = registered()
    return {"inside": [lies_in(tensor, ranges) for tensor in tensors], "ranges": len(ranges), "bytes": sum(b - a for a, b in ranges)}


with tempfile.TemporaryDirectory() as folder:
    torch.cuda.set_device(0)
    store = dist.FileStore(os.path.join(folder, "store"), 1)
    # Made by hand: a rank that is run alone gets a group that does nothing.
    backend = dist.ProcessGroupNCCL(store, 0, 1)
    if sys.argv[1:]:
        outcome("pool", lambda: communicator(backend, sys.argv[1] == "early"))
    else:
        outcome("pool", lambda: pool(backend, folder))
        outcome("symmetric", symmetric)
    print(json.dumps(found, sort_keys=True), flush=True)
    backend.abort()
