"""Asynchronous collectives whose tensors the program lets go of; prints how many MiB stay allocated."""

import torch
import torch.distributed as dist

dist.init_process_group("nccl")
world = dist.get_world_size()


def allocated():
    return torch.cuda.memory_allocated() >> 20


def reduce_scatter():
    out = torch.empty(1 << 18, device="cuda")
    return dist.reduce_scatter_tensor(out, torch.empty(world << 18, device="cuda"), async_op=True)


def work(kernels):
    x = torch.ones(1, device="cuda")
    for _ in range(kernels):
        x += 1


work_ = reduce_scatter()
assert isinstance(work_, dist.Work)
print("started", allocated())
work_.wait()
print("waited", allocated())
reduce_scatter().get_future().wait()
print("future", allocated())
torch.cuda.synchronize()
print("done", allocated())
dist.all_reduce(torch.ones(1, device="cuda"))
print("found", allocated())
reduce_scatter()
work(500)
dist.all_reduce(torch.ones(1, device="cuda"))
print("behind", allocated())
work(600)
dist.all_reduce(torch.ones(1, device="cuda"))
print("caught_up", allocated())
