"""Memory that libraries want to know: pools with NCCL's allocator, registered with a communicator, and symmetric memory. Prints what came of each."""

import json
import os
import subprocess
import tempfile

import torch
import torch.distributed as dist

MIB = 1 << 20
found = {}
kept = []  # while pools have memory of it


def outcome(name, act):
    """What came of it: its answer, or the exception."""
    try:
        found[name] = act()
    except Exception as error:
        found[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"


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
    addresses = [(segment["address"], segment["address"] + segment["total_size"]) for segment in segments]

    def lies(tensor):
        return any(start <= tensor.data_ptr() < end for start, end in addresses)

    answer = {"inside": [lies(inside), *map(lies, nested)], "outside": [lies(before), lies(after)], "uses": made.use_count()}
    backend.allreduce([inside]).wait()  # makes the communicator
    backend.register_mem_pool(made)
    backend.allreduce([inside]).wait()
    torch.cuda.synchronize()
    backend.deregister_mem_pool(made)
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


with tempfile.TemporaryDirectory() as folder:
    torch.cuda.set_device(0)
    store = dist.FileStore(os.path.join(folder, "store"), 1)
    # Made by hand: a rank that is run alone gets a group that does nothing.
    backend = dist.ProcessGroupNCCL(store, 0, 1)
    outcome("pool", lambda: pool(backend, folder))
    outcome("symmetric", symmetric)
    print(json.dumps(found, sort_keys=True), flush=True)
    backend.abort()
