"""Two ranks; DDP takes the model before the optimizer does."""
# ranks: 2

import os

import torch
import torch.distributed as dist
from nets import Text, batch, text_loss, values
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo", init_method=f"file://{os.environ['STORE']}", rank=int(os.environ["RANK"]), world_size=2)
    torch.manual_seed(0)
    model = Text()
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    torch.manual_seed(dist.get_rank())
    for step in range(4):
        x, y = batch(2 * step + dist.get_rank())
        optimizer.zero_grad()
        loss = text_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    total = torch.tensor([sum(p.detach().double().abs().sum().item() for p in model.parameters())], dtype=torch.double)
    both = [torch.zeros(1, dtype=torch.double) for _ in range(2)]
    dist.all_gather(both, total)
    assert both[0] == both[1], "ranks have different weights"
    found = values(losses, model.module, optimizer)
    dist.destroy_process_group()
    return found


if __name__ == "__main__":
    RESULT = main()
