"""One of several ranks of a dry run, side by side: what they tell each other arrives."""

import os
import sys

import torch
import torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=size)
for turn in range(3):
    gathered = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "turn": turn, "more": "x" * 1000 * rank})
    assert [(one["rank"], one["turn"]) for one in gathered] == [(other, turn) for other in range(size)], gathered
said = ["from the first", 1] if rank == 0 else [None, None]
dist.broadcast_object_list(said, 0)
assert said == ["from the first", 1], said
collected = [None] * size if rank == 1 else None
dist.gather_object(("part", rank), collected, dst=1)
assert rank != 1 or collected == [("part", other) for other in range(size)], collected
mine = [None]
dist.scatter_object_list(mine, [f"for {other}" for other in range(size)] if rank == 1 else None, src=1)
assert mine == [f"for {rank}"], mine
group = dist.new_group([0, 1])
pair = [None, None]
dist.all_gather_object(pair, rank, group=group)
assert pair == [0, 1], pair
if rank == 0:
    dist.send_object_list([1, "two"], dst=1)
else:
    received = [None, None]
    assert dist.recv_object_list(received, src=0) == 0
    assert received == [1, "two"], received
print(f"rank {rank} heard all")
