"""Reads values back from the device in several ways."""

import torch

known = torch.tensor([1.0, 2.0]).cuda()
back = known.tolist()
x = torch.randn(3, device="cuda")
for _ in range(3):
    loss = x.sum().item()  # loss
print("loss", loss)
print("list", x.to(torch.int64).tolist())  # list
print("half", x.to(torch.float16).sum().item())  # half
length = int((x.sum() * 3).long())  # length
print("nonzero", len(torch.nonzero(x)))  # nonzero
print("back", back)
x.requires_grad_()
x[x > 0].sum().backward()  # mask, and again where no Python runs
assert torch.isfinite(x).all()  # check
