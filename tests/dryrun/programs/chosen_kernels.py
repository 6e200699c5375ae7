"""Operations that choose their kernels by the version of the code that the device loads."""
import json
import os

import torch

values = torch.rand(1000, device="cuda", requires_grad=True)
values[torch.randint(0, 1000, (500,), device="cuda")].sum().backward()
table = torch.nn.Embedding(100, 8).cuda()
table(torch.randint(0, 100, (4096,), device="cuda")).sum().backward()
ran = {
    "index backward": list(values.grad.shape),
    "embedding backward": list(table.weight.grad.shape),
    "sort": list(torch.sort(torch.rand(100_000, device="cuda")).values.shape),
    "unique": torch.unique(torch.randint(0, 9, (5000,), device="cuda")).dim(),
    "nonzero": torch.nonzero(torch.ones(10, device="cuda")).dim(),
    "cumsum": list(torch.cumsum(torch.rand(5000, device="cuda"), 0).shape),
}
torch.cuda.synchronize()
print(json.dumps(ran), flush=True)
# On a busy machine autograd's thread may still be letting go of the backward passes; PyTorch then dies in the interpreter's end.
os._exit(0)
