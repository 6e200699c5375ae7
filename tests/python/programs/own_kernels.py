"""Launches a kernel of its own between two reads of what it is not given, and reads what it is given."""

import torch
import triton
import triton.language as tl


@triton.jit
def copy(source, target, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at, mask=at < count), mask=at < count)


labels = torch.tensor([[5, -100, 9, 4], [2, 7, -100, -100]]).cuda()
mask = labels != -100
hidden = torch.randn(2, 4, 16, device="cuda", requires_grad=True)
chosen = hidden[mask]
counted = torch.tensor([3, 4]).cuda()
copied = torch.empty_like(chosen)
copy[(1,)](chosen.detach(), copied, chosen.numel(), BLOCK=1024)
spread = torch.zeros(2, 4, 16, device="cuda").masked_scatter(mask[:, :, None].expand(2, 4, 16), chosen)
spread.sum().backward()
print("after a kernel", mask.sum().item(), list(labels[mask].shape), list(hidden.grad.shape), counted.tolist())
copy[(1,)](labels, counted, 2, BLOCK=8)
print("of a kernel", counted.tolist())
