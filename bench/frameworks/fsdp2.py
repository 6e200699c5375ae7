"""FSDP2: fully_shard on each layer, mixed precision, clipping; in longer runs an evaluation every ten steps."""

import torch
import torch.distributed as dist
from tiny import STEPS, Tokens, language_model
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("nccl")
torch.cuda.set_device(0)
mesh = init_device_mesh("cuda", (dist.get_world_size(),))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
model = language_model().cuda()
for layer in model.model.layers:
    fully_shard(layer, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for number, batch in enumerate(torch.utils.data.DataLoader(Tokens(), batch_size=8)):
    model(**{name: tensor.cuda() for name, tensor in batch.items()}).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if number % 10 == 9:
        with torch.no_grad():
            model(**{name: tensor.cuda() for name, tensor in batch.items()})
    if number + 1 == STEPS:
        break
dist.destroy_process_group()
