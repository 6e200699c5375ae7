"""FSDP2: fully_shard on each layer, mixed precision; one rank of two."""

import sys

import torch
import torch.distributed as dist
from tiny import LENGTH, VOCABULARY, language_model
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("nccl")
torch.cuda.set_device(0)
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
model = language_model().cuda()
for layer in model.model.layers:
    fully_shard(layer, mp_policy=policy)
fully_shard(model, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _step in range(8):
    text = torch.randint(VOCABULARY, (int(sys.argv[1]), LENGTH), device="cuda")
    model(input_ids=text, labels=text).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
