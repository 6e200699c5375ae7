"""Derives lengths, masks, counts and indices from data, on the device and on the host; prints what differs."""

import torch
import torch.nn.functional as F


def lengths(d):
    ids = torch.tensor([[5, 3, 9, 0], [2, 7, 0, 0]]).to(d)
    mask = ids != 0
    offsets = F.pad(mask.sum(-1).cumsum(0, dtype=torch.int32), (1, 0))
    assert not bool(mask.sum() == mask.numel()) and bool((mask | True).all())
    return mask, ids[mask], mask.nonzero(), torch.where(mask, ids, -100), offsets, offsets.diff().max().item(), mask.float().mean()


def counts(d):
    ids = torch.tensor([3, 1, 3, 0, 7], device=d)
    histogram = torch.histc(ids.int().float(), bins=8, min=0, max=7)
    return ids.bincount(minlength=9), histogram, ids.unique(return_inverse=True, return_counts=True), ids.unique_consecutive()


def orders(d):
    ids = torch.tensor([3, 1, 2, 0, 7], device=d)
    return ids.sort(), ids.argsort(descending=True), ids.topk(2), ids.argmax(), torch.searchsorted(ids.sort()[0], torch.tensor([2, 9], device=d))


def in_place(d):
    x = torch.zeros(3, 4, dtype=torch.int64).to(d)
    x[1:, 1:3] = 7
    x[:, 0] += torch.arange(3, device=d)
    x.t()[3].fill_(-1)
    x[x == 7] = 8
    x.index_add_(0, torch.tensor([0], device=d), torch.ones(1, 4, dtype=torch.int64, device=d))
    x.scatter_(1, torch.tensor([[3]], device=d), 5)
    return x, x.masked_fill(x > 4, 0), x.view(-1)[5].item()


def slices(d):
    start = torch.tensor(3, device=d)
    repeated = torch.repeat_interleave(torch.arange(3, device=d), torch.tensor([1, 0, 2], device=d))
    return torch.arange(100, device=d)[start : start + 4], repeated, torch.cat([repeated, start[None]]), F.one_hot(repeated, 4)


def packed(d):
    positions = torch.tensor([[0, 1, 2, 0, 1, 0]], device=d)
    segments = (positions == 0).cumsum(-1)
    causal = torch.ones(6, 6, dtype=torch.bool, device=d).tril()
    return segments, causal & (segments[0, :, None] == segments[0, None])


def lists(d):
    counts = [torch.tensor(3.0).to(d), torch.tensor([1, 2]).to(d), torch.zeros(4, 4, dtype=torch.int64).to(d).t()[1:3, ::2]]
    torch._foreach_add_(counts, 1)
    torch._foreach_mul_(counts[1:], [2, 3])
    sums = torch._foreach_add(counts, counts, alpha=2)
    torch._foreach_zero_(counts[:1])
    torch._foreach_copy_(counts[1:2], [torch.tensor([7, 8]).to(d)])
    return tuple(counts), tuple(sums), counts[0].item(), torch._foreach_neg(counts)[1].max().item()


def scaled(d):
    scaler = torch.amp.GradScaler(d, init_scale=1024.0, growth_interval=2)
    weight = torch.nn.Parameter(torch.ones(3).to(d))
    optimizer, scales = torch.optim.SGD([weight], lr=0.1), []
    for _ in range(5):
        weight.grad = torch.full_like(weight, 2.0) * scaler.scale(torch.ones((), device=d))
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales


def flat(value):
    values = value if isinstance(value, (tuple, list)) else [value]
    return [v.tolist() if isinstance(v, torch.Tensor) else v for one in values for v in (flat(one) if isinstance(one, tuple) else [one])]


for function in (lengths, counts, orders, in_place, slices, packed, lists, scaled):
    reused = torch.empty(64, dtype=torch.int64, device="cuda")
    reused.fill_(9)
    del reused
    host, device = flat(function("cpu")), flat(function("cuda"))
    print(function.__name__, "same" if host == device else f"{host} but {device}")

# What a router chooses from unknown logits is drawn: different experts for each token, and all counts follow.
experts = torch.randn(64, 8, device="cuda").softmax(-1).topk(2)[1]
table = F.one_hot(experts, 8).sum(1)
counts_ = experts.flatten().bincount(minlength=8)
rows = sum(len(torch.where(table[:, expert])[0]) for expert in range(8))
print("router", "same" if table.max().item() == 1 and counts_.tolist() == table.sum(0).tolist() and rows == 128 else counts_.tolist())
# Unknown: as before, and what a kernel of no operation could have written is unknown too.
print("unknown", torch.randn(4, device="cuda").sum().item(), torch.equal(*torch.randn(2, 1, device="cuda")), len(torch.randn(5, device="cuda").nonzero()))
# What an operation reads for itself is not what was at that place of memory before.
indices, values = torch.randint(0, 5000, (1, 640)).cuda(), torch.randn(640, 4, device="cuda")
before = [torch.full((count,), 1 << 20).cuda() for count in (1, 8, 64, 640, 1280, 5000) for _ in range(3)]
del before
print("own", torch.sparse_coo_tensor(indices, values, (5000, 4), check_invariants=False).coalesce()._nnz() <= 640)
