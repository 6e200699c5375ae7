"""One rank of a data-parallel job that talks to the others in many ways."""

import sys

import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
if sys.argv[1:] == ["fail"] and rank == 2:
    sys.exit(5)
torch.cuda.set_device(0)
pair = dist.new_group([rank, (rank + 1) % world], backend="gloo")
assert (dist.get_backend(), dist.get_backend(pair), dist.get_backend(dist.new_group([rank]))) == ("nccl", "gloo", "nccl")
assert (dist.group.WORLD.name(), pair.name()) == ("nccl", "gloo"), "a group's own name"
assert eval("dist.get_backend()", {"__name__": "torch.distributed.pipelining", "dist": dist}) == "fake"


def starts_no_batch(*_arguments, **_options):
    raise RuntimeError("getBackendName is not implemented")  # as of PyTorch 2.5's fake groups


starts, dist.distributed_c10d._coalescing_manager = dist.distributed_c10d._coalescing_manager, starts_no_batch
message = torch.zeros(8, device="cuda")
works = dist.batch_isend_irecv([dist.P2POp(way, message, (rank + 1) % world) for way in (dist.isend, dist.irecv)])
assert len(works) == 2 and all(work.wait() for work in works)
dist.distributed_c10d._coalescing_manager = starts
print(f"rank {rank} of {world}, group {dist.get_world_size(pair)}")
names = [None] * world
dist.all_gather_object(names, f"rank {rank}")
assert names == [f"rank {rank}"] * world
shared = ["mine"]
dist.broadcast_object_list(shared, src=0)
dist.barrier()
sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(2)]
dist.all_gather(sizes, torch.tensor([42]), group=pair)
assert [int(size) for size in sizes] == [42, 42]

layers = 3 if rank == 0 else 2
model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(layers)]).cuda()
model = nn.parallel.DistributedDataParallel(model)
halves = nn.parallel.DistributedDataParallel(nn.Linear(64, 64).cuda())


def in_halves(_state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    half = bucket.buffer().to(torch.bfloat16)
    work = dist.all_reduce(half, async_op=True)
    return work.get_future().then(lambda future: bucket.buffer().copy_(future.value()[0]))


halves.register_comm_hook(None, in_halves)
for _ in range(3):
    halves(model(torch.randn(32, 64, device="cuda"))).sum().backward()
    everyone = torch.empty(world * 64, device="cuda")
    dist.all_gather_into_tensor(everyone, torch.ones(64, device="cuda"))
    uneven = [torch.empty(64, device="cuda"), torch.empty(65, device="cuda")]  # this rank's, and the other's
    dist.all_gather(uneven if dist.get_rank(pair) == 0 else uneven[::-1], torch.ones(64, device="cuda"), group=pair)
    even = [torch.empty(7_000, device="cuda") for _ in range(2)]
    dist.all_gather(even, torch.ones(7_000, device="cuda"), group=pair)
    dist.reduce_scatter(even[0], [torch.ones(7_000, device="cuda") for _ in range(2)], group=pair)
    with torch.no_grad():  # an optimizer would import a compiler, which takes as long as all the rest
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
            parameter.grad = None
dist.destroy_process_group()
# Autograd's thread lets go of this graph after backward() has returned, and needs the interpreter's lock for it, which
# nobody has to hand over here: the program ends as a recorded one has to, without waiting for that thread.
last = torch.ones(1, device="cuda", requires_grad=True).sum()
sys.setswitchinterval(1000)
last.backward()
