"""Sizes that hang on values, of the kinds that detectors, routers, packers, decoders and samplers have: what each is on the host, on
a device that was given the values, and on one that drew them. Prints a JSON object a kind.
"""

import json

import torch
import torch.nn.functional as F

generator = torch.Generator()
device, is_given = "cpu", True


def given(draw, *arguments, **options):
    """Numbers that the host drew, or that the device does."""
    return draw(*arguments, generator=generator).to(device) if is_given else draw(*arguments, device=device)


def uniform(*sizes):
    return given(torch.rand, *sizes)


def normal(*sizes):
    return given(torch.randn, *sizes)


def ints(count, *sizes):
    return given(torch.randint, 0, count, sizes)


def boxes(n, size=256):
    a = uniform(n, 2) * size
    return torch.cat([a, a + uniform(n, 2) * 60 + 4], 1)


def iou(a, b):
    lt = torch.max(a[:, None, :2], b[None, :, :2])
    rb = torch.min(a[:, None, 2:], b[None, :, 2:])
    wh = (rb - lt).clamp(min=0)
    i = wh[..., 0] * wh[..., 1]
    area_a, area_b = ((x[:, 2] - x[:, 0]) * (x[:, 3] - x[:, 1]) for x in (a, b))
    return i / (area_a[:, None] + area_b[None] - i)


KINDS = {}


def kind(work):
    KINDS[work.__name__] = work
    return work


@kind
def max_iou_assigner():
    o = iou(boxes(600), boxes(12))
    m, i = o.max(1)
    pos = m > 0.3
    return [int(pos.sum()), len(torch.nonzero(pos)), len(o[pos])]


@kind
def atss():
    o = iou(boxes(400), boxes(9))
    d = uniform(400, 9)
    _, top = d.topk(9, 0, largest=False)
    c = o.gather(0, top)
    border = c.mean(0) + c.std(0)
    return [len((c >= border).nonzero())]


@kind
def sim_ota():
    o = iou(boxes(300), boxes(7))
    ks = torch.clamp(o.topk(10, 0).values.sum(0).int(), min=1)
    cost = uniform(300, 7)
    m = torch.zeros_like(cost, dtype=torch.uint8)
    for j in range(7):
        _, p = torch.topk(cost[:, j], k=ks[j].item(), largest=False)
        m[p, j] = 1
    return [int(m.sum()), len(m.sum(1).nonzero())]


@kind
def task_aligned():
    a = uniform(500, 8) * iou(boxes(500), boxes(8)) ** 2
    t = a.topk(13, 0).indices
    m = torch.zeros_like(a).scatter_(0, t, 1.0)
    fg = m.sum(1) > 0
    return [len(a[fg]), int((m.sum(1) > 1).sum())]


@kind
def fcos():
    p = uniform(800, 2) * 256
    b = boxes(10)
    d = torch.cat([p[:, None] - b[None, :, :2], b[None, :, 2:] - p[:, None]], -1)
    inside = d.amin(-1) > 0
    m = d.amax(-1)
    ok = inside & (m > 8) & (m < 64)
    return [len(ok.any(1).nonzero())]


@kind
def nms_loop():
    b, s = boxes(200), uniform(200)
    order = s.argsort(descending=True)
    keep = []
    while order.numel() > 0:
        i = order[0]
        keep.append(i)
        if order.numel() == 1:
            break
        o = iou(b[i][None], b[order[1:]])[0]
        order = order[1:][o <= 0.3]
    return [len(keep)]


@kind
def soft_nms():
    b, s = boxes(60), uniform(60).clone()
    n = 0
    while (s > 0.2).any() and n < 100:
        i = s.argmax()
        s = s * (1 - iou(b[i][None], b)[0])
        s[i] = 0
        n += 1
    return [n]


@kind
def batched_nms():
    b, _, c = boxes(300), uniform(300), ints(5, 300)
    out = 0
    for q in range(5):
        sel = (c == q).nonzero()[:, 0]
        o = iou(b[sel], b[sel]).triu(1) > 0.3
        out += int((~o.any(0)).sum())
    return [out]


@kind
def rpn():
    b, s = boxes(1000), uniform(1000)
    t = s.topk(300).indices
    b = b[t].clamp(0, 256)
    keep = ((b[:, 2] - b[:, 0]) >= 16) & ((b[:, 3] - b[:, 1]) >= 16)
    return [len(b[keep])]


@kind
def roi_sampling():
    v = (iou(boxes(400), boxes(10)).amax(1) > 0.3).long()
    pos, neg = (v == 1).nonzero()[:, 0], (v == 0).nonzero()[:, 0]
    n = min(pos.numel(), 32)
    pos = pos[torch.randperm(pos.numel(), device=device)[:n]]
    neg = neg[torch.randperm(neg.numel(), device=device)[: 128 - n]]
    return [pos.numel(), neg.numel()]


@kind
def mask_crop():
    m = uniform(4, 256, 256)
    n = 0
    for x0, y0, x1, y1 in boxes(4, 180).int().tolist():
        n += m[0, y0:y1, x0:x1].numel()
    return [n]


@kind
def top_k_routing():
    v = normal(256, 8)
    w, i = v.softmax(-1).topk(2, -1)
    m = F.one_hot(i, 8).permute(2, 1, 0)
    return [len(torch.where(m[e])[0]) for e in range(8)]


@kind
def capacity_routing():
    i = normal(256, 8).argmax(-1)
    h = F.one_hot(i, 8)
    pos = h.cumsum(0) * h
    ok = (pos > 0) & (pos <= 30)
    return [int(ok.sum()), len(ok.nonzero())]


@kind
def expert_choice():
    i = normal(256, 8).softmax(-1).topk(64, 0).indices
    return [len(i.flatten().unique())]


@kind
def sorted_dispatch():
    i = normal(256, 8).argmax(-1)
    c = torch.bincount(i, minlength=8)
    x = uniform(256, 4)[i.argsort()]
    return [len(p) for p in x.split(c.tolist())]


@kind
def hash_routing():
    t = ints(1000, 300)
    return [len((t % 7 == e).nonzero()) for e in range(7)]


@kind
def first_fit_packing():
    bins = []
    for n in sorted((ints(200, 64) + 1).tolist(), reverse=True):
        for j, b in enumerate(bins):
            if b + n <= 256:
                bins[j] += n
                break
        else:
            bins.append(n)
    return [len(bins)]


@kind
def unpad():
    v = ints(60, 16) + 1
    m = torch.arange(64, device=device) < v[:, None]
    i = m.flatten().nonzero()[:, 0]
    return [len(i), int(v.max()), int(F.pad(v.cumsum(0), (1, 0))[-1])]


@kind
def packed_sequence():
    v = ints(30, 8) + 1
    p = torch.nn.utils.rnn.pack_padded_sequence(uniform(8, 31, 4), v.cpu(), True, False)
    return [len(p.data)]


@kind
def bucketing():
    v = ints(512, 64)
    b = torch.bucketize(v, torch.tensor([64, 128, 256], device=device))
    return [len(v[b == q]) for q in range(4)]


@kind
def dynamic_padding():
    v = ints(100, 16) + 1
    n = v.max().item()
    return [torch.zeros(16, n, device=device).numel()]


@kind
def greedy_decode():
    w = normal(32, 32)
    t = ints(32, 4)
    n = 0
    done = torch.zeros(4, dtype=torch.bool, device=device)
    while n < 40 and not done.all():
        t = w[t].argmax(-1)
        done |= t == 3
        n += 1
    return [n]


@kind
def beam_search():
    w = normal(40, 40).log_softmax(-1)
    s = torch.zeros(3, device=device)
    t = torch.zeros(3, dtype=torch.long, device=device)
    fin = 0
    n = 0
    while fin < 2 and n < 30:
        v, i = (s[:, None] + w[t]).flatten().topk(6)
        t2, end = i % 40, (i % 40) == 1
        fin += int(end.sum())
        keep = (~end).nonzero()[:3, 0]
        s, t = v[keep], t2[keep]
        n += 1
        if len(t) == 0:
            break
    return [n]


@kind
def top_p():
    p = (normal(4, 100) * 3).softmax(-1).sort(-1, descending=True).values
    m = p.cumsum(-1) - p < 0.9
    return [int(m.sum()), len(p[m])]


@kind
def speculative():
    a, b = ints(3, 8), ints(3, 8)
    n = (a == b).long().cumprod(0).sum().item()
    return [a[: n + 1].numel()]


@kind
def early_exit():
    x = uniform(128, 8)
    sizes = []
    for layer in range(4):
        conf = (x @ uniform(8, 4) * 4).softmax(-1).amax(-1)
        x = x[conf < 0.6]
        sizes.append(len(x))
    return sizes


@kind
def adaptive_halting():
    h = torch.zeros(64, device=device)
    n = 0
    while (h < 0.99).any() and n < 20:
        run = h < 0.99
        h = h + torch.where(run, uniform(64) * 0.5, torch.zeros_like(h))
        n += 1
    return [n]


@kind
def curriculum():
    loss = uniform(256)
    order = loss.argsort()
    keep = order[loss[order] < 0.4]
    return [len(keep)]


@kind
def hard_examples():
    v = uniform(4096)
    hard = v[v > 0.7]
    n = max(hard.numel(), 256)
    return [hard.numel(), v.topk(n).values.numel()]


@kind
def token_dropping():
    x = uniform(200, 8)
    return [len(x[uniform(200) < 0.3])]


@kind
def token_merging():
    x = F.normalize(normal(64, 16), dim=-1)
    s = x[::2] @ x[1::2].T
    v, i = s.max(-1)
    m = v > 0.4
    return [int(m.sum()), len(i[m].unique())]


@kind
def voxels():
    u, c = torch.unique((uniform(500, 3) * 6).long(), dim=0, return_counts=True)
    return [len(u), int(c.max())]


@kind
def ball_query():
    p = uniform(200, 3)
    return [len((torch.cdist(p, p) < 0.2).nonzero())]


@kind
def subgraph():
    e = ints(100, 2, 600)
    m = ints(2, 100).bool()
    kept = e[:, m[e[0]] & m[e[1]]]
    return [kept.shape[1], len(kept.unique())]


@kind
def neighbours():
    d = torch.bincount(ints(50, 300), minlength=50)
    return [len(torch.repeat_interleave(torch.arange(50, device=device), d)), int(d.max())]


@kind
def ctc_collapse():
    t = normal(80, 6).argmax(-1)
    u = torch.unique_consecutive(t)
    return [len(u), len(u[u != 0])]


@kind
def spans():
    m = uniform(300) > 0.5
    d = torch.diff(m.int())
    return [len((d == 1).nonzero()), len((d == -1).nonzero())]


@kind
def pruning():
    w = normal(1000).abs()
    t = w.kthvalue(700).values
    return [len(w[w > t])]


@kind
def instances():
    m = ints(9, 64, 64)
    n = 0
    for v in m.unique():
        n += len((m == v).nonzero())
    return [len(m.unique()), n]


@kind
def masked_lm():
    t = ints(1000, 8, 64)
    m = (uniform(8, 64) < 0.15) & (t > 3)
    return [len(t[m])]


@kind
def triplets():
    x = normal(40, 8)
    v = ints(5, 40)
    d = torch.cdist(x, x)
    same = v[:, None] == v[None]
    return [len(((d[:, :, None] - d[:, None] + 0.2 > 0) & same[:, :, None] & ~same[:, None]).nonzero())]


@kind
def replay():
    p = uniform(200)
    return [len(torch.multinomial(p, 64, replacement=True, generator=None).unique())]


def from_host(work):
    return work()


def from_device(work):
    return work()


torch.zeros(1, device="cuda")
for name, work in KINDS.items():
    seen = []
    for call, device, is_given in ((from_host, "cpu", True), (from_host, "cuda", True), (from_device, "cuda", False)):
        generator.manual_seed(7)
        torch.manual_seed(1)
        seen.append(call(work))
    print(json.dumps([name, *seen]), flush=True)
