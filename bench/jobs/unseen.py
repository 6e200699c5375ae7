"""Training loops that bench/served.py judges by and nothing is chosen by: each is a function, its documentation its name in the table.

Sizes are drawn on the host. No value of a GPU is read, so that each makes the same requests on a GPU and on a stand-in.
"""

import copy
import random

import torch
from jobs.training import Decoder, skewed, tokens, values
from torch import Tensor, nn
from torch.nn import functional as F

#: Steps of each job, and how often it evaluates.
STEPS, EVERY = 30, 10
VOCABULARY = 16000


def draws() -> random.Random:
    torch.manual_seed(3)
    return random.Random(3)


class Conformer(nn.Module):
    """A block of half feed-forwards, attention and a depthwise convolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = (
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width)) for _ in "12"
        )
        self.attend = nn.MultiheadAttention(width, 4, dropout=0.1, batch_first=True)
        self.norm, self.point, self.out = nn.LayerNorm(width), nn.Conv1d(width, 2 * width, 1), nn.Conv1d(width, width, 1)
        self.depth, self.batch = nn.Conv1d(width, width, 31, padding=15, groups=width), nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.first(x) / 2
        x = x + self.attend(x, x, x, need_weights=False)[0]
        h = F.glu(self.point(self.norm(x).transpose(1, 2)), 1)
        x = x + self.out(F.silu(self.batch(self.depth(h)))).transpose(1, 2)
        return x + self.last(x) / 2


def conformer() -> None:
    """conformer, CTC, utterances of any length"""
    draw = draws()
    front = nn.Sequential(nn.Conv2d(1, 128, 3, 2), nn.ReLU(), nn.Conv2d(128, 128, 3, 2), nn.ReLU()).cuda()
    join, blocks, head = (
        nn.Linear(128 * 19, 256).cuda(),
        nn.Sequential(*(Conformer(256) for _ in range(6))).cuda(),
        nn.Linear(256, 1000).cuda(),
    )
    parts = nn.ModuleList([front, join, blocks, head])
    adam = torch.optim.AdamW(parts.parameters(), lr=1e-4)

    def loss(batch: int, frames: int) -> Tensor:
        h = front(values(batch, 1, frames, 80, dtype=torch.float32))
        found = head(blocks(join(h.transpose(1, 2).flatten(2)))).log_softmax(2).transpose(0, 1)
        most = found.shape[0] // 4
        return F.ctc_loss(found, torch.randint(1, 1000, (batch, most)).cuda(), [found.shape[0]] * batch, [most] * batch)

    for step in range(STEPS):
        loss(draw.randint(6, 24), skewed(draw, 200, 1600)).backward()
        nn.utils.clip_grad_norm_(parts.parameters(), 5.0)
        adam.step()
        adam.zero_grad()
        if step % EVERY == EVERY - 1:
            parts.eval()
            with torch.no_grad():
                for _ in range(3):
                    loss(16, skewed(draw, 200, 2000))
            parts.train()


def trees() -> None:
    """tree-LSTM on trees of drawn shapes"""
    draw, width = draws(), 512
    words, gates, forget = (
        nn.Embedding(VOCABULARY, width).cuda(),
        nn.Linear(2 * width, 3 * width).cuda(),
        nn.Linear(2 * width, width).cuda(),
    )
    head = nn.Linear(width, 5).cuda()
    parts = nn.ModuleList([words, gates, forget, head])
    adam = torch.optim.Adam(parts.parameters())

    def node(size: int, batch: int) -> tuple[Tensor, Tensor]:
        x = words(tokens(VOCABULARY, batch))
        below = []
        rest = size - 1
        while rest > 0:
            part = draw.randint(1, rest)
            below.append(node(part, batch))
            rest -= part
        h = sum((h for h, _ in below), torch.zeros_like(x))
        i, o, u = gates(torch.cat([x, h], 1)).chunk(3, 1)
        c = i.sigmoid() * u.tanh() + sum((forget(torch.cat([x, h], 1)).sigmoid() * c for h, c in below), torch.zeros_like(x))
        return o.sigmoid() * c.tanh(), c

    for _ in range(STEPS):
        found = [head(node(draw.randint(4, 24), draw.choice((64, 128, 256)))[0]).logsumexp(1).mean() for _ in range(4)]
        torch.stack(found).mean().backward()
        adam.step()
        adam.zero_grad()


def mlp(*widths: int) -> nn.Sequential:
    layers = [layer for a, b in zip(widths, widths[1:]) for layer in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1]).cuda()


def ppo_control() -> None:
    """PPO on pictures, rollouts kept on the GPU"""
    draw = draws()
    eyes = nn.Sequential(
        nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten()
    ).cuda()
    acts, worth = mlp(3136, 512, 6), mlp(3136, 512, 1)
    parts = nn.ModuleList([eyes, acts, worth])
    adam = torch.optim.Adam(parts.parameters(), lr=2.5e-4, eps=1e-5)
    for _ in range(STEPS):
        kept: list[list[Tensor]] = [[], [], []]
        with torch.no_grad():
            for _ in range(32):
                seen = values(8, 4, 84, 84, dtype=torch.float32)
                h = eyes(seen)
                for held, new in zip(kept, (seen, acts(h).log_softmax(1), worth(h))):
                    held.append(new)
        seen, chances, gains = (torch.stack(held).flatten(0, 1) for held in kept)
        for _ in range(draw.randint(2, 4)):
            for rows in torch.randperm(len(seen)).split(64):
                rows = rows.cuda()
                h = eyes(seen[rows])
                ratio = (acts(h).log_softmax(1) - chances[rows]).exp()
                (ratio.mean() + (worth(h) - gains[rows]).square().mean()).backward()
                nn.utils.clip_grad_norm_(parts.parameters(), 0.5)
                adam.step()
                adam.zero_grad()


def sac() -> None:
    """SAC with twin critics and their averages"""
    draws()
    actor, critics = mlp(376, 1024, 1024, 34), nn.ModuleList(mlp(393, 1024, 1024, 1) for _ in range(2))
    slow = copy.deepcopy(critics)
    entropy = torch.zeros(1, device="cuda", requires_grad=True)
    adams = [torch.optim.Adam(p, lr=3e-4) for p in (actor.parameters(), critics.parameters(), [entropy])]
    for step in range(STEPS * 4):
        seen, after, done = (
            values(256, 376, dtype=torch.float32),
            values(256, 376, dtype=torch.float32),
            values(256, 17, dtype=torch.float32),
        )
        mean, spread = actor(seen).chunk(2, 1)
        act = (mean + spread.exp() * torch.randn_like(mean)).tanh()
        adams[2].zero_grad()
        (entropy * act.detach().sum(1).mean()).sum().backward()
        adams[2].step()
        with torch.no_grad():
            goal = torch.min(*(one(torch.cat([after, actor(after).chunk(2, 1)[0].tanh()], 1)) for one in slow))
        loss = sum(F.mse_loss(one(torch.cat([seen, done], 1)), goal) for one in critics)
        adams[1].zero_grad()
        loss.backward()
        adams[1].step()
        loss = -torch.min(*(one(torch.cat([seen, act], 1)) for one in critics)).mean()
        adams[0].zero_grad()
        loss.backward()
        adams[0].step()
        with torch.no_grad():
            for a, b in zip(slow.parameters(), critics.parameters()):
                a.lerp_(b, 0.005)
        if step % 40 == 39:
            with torch.no_grad():
                for _ in range(20):
                    actor(values(1, 376, dtype=torch.float32))


def cell(a: int, b: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.SiLU())


def yolo() -> None:
    """detector of one stage, pictures of many sizes, an averaged model that evaluates"""
    draw = draws()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = (3, 32, 64, 128, 256, 512)
            self.down = nn.ModuleList(nn.Sequential(cell(a, b, 2), cell(b, b), cell(b, b)) for a, b in zip(widths, widths[1:]))
            self.heads = nn.ModuleList(nn.Conv2d(width, 3 * 85, 1) for width in widths[3:])

        def forward(self, x: Tensor) -> Tensor:
            maps = []
            for part in self.down:
                x = part(x)
                maps.append(x)
            found = [head(one).unflatten(1, (3, 85)).permute(0, 1, 3, 4, 2).flatten(1, 3) for head, one in zip(self.heads, maps[2:])]
            return torch.cat(found, 1)

    net = Net().cuda()
    average = copy.deepcopy(net).requires_grad_(False).eval()
    sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.937, nesterov=True)
    for step in range(STEPS):
        side = 32 * draw.randint(10, 20)
        with torch.autocast("cuda", torch.bfloat16):
            found = net(values(16, 3, side, side, dtype=torch.float32))
            boxes = draw.randint(20, 200)
            rows, to = torch.randint(found.shape[1], (boxes,)).cuda(), values(boxes, 85, dtype=torch.float32)
            matched = found[:, rows]
            loss = (matched.float() - to).square().mean() + F.binary_cross_entropy_with_logits(
                found[..., 4].float(), torch.zeros_like(found[..., 4], dtype=torch.float32)
            )
        loss.backward()
        sgd.step()
        sgd.zero_grad()
        with torch.no_grad():
            for a, b in zip(average.state_dict().values(), net.state_dict().values()):
                if a.is_floating_point():
                    a.mul_(0.999).add_(b, alpha=0.001)
        if step % EVERY == EVERY - 1:
            with torch.no_grad():
                for _ in range(3):
                    found = average(values(32, 3, 640, 640, dtype=torch.float32)).float()
                    best = found.flatten(0, 1)[: draw.randint(100, 3000)]
                    (best[:, None, :4] - best[None, :, :4]).abs().amax(2)


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised by five iterations."""

    def __init__(self, parameters) -> None:
        super().__init__(list(parameters), {"lr": 0.02})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for p in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            state = self.state[p]
            m = state.setdefault("m", torch.zeros_like(p)).lerp_(p.grad, 0.05)
            x = p.grad.lerp(m, 0.95).bfloat16()
            if tall := x.shape[0] > x.shape[1]:
                x = x.T
            x = x / (x.norm() + 1e-7)
            for _ in range(5):
                a = x @ x.T
                x = 3.4 * x + (-4.8 * a + 2.0 * a @ a) @ x
            p.add_((x.T if tall else x).to(p.dtype), alpha=-0.02)


def nanochat() -> None:
    """nanochat-like: Muon and AdamW, evaluation and samples every 10"""
    draws()
    net = Decoder(32000, 768, 12, 8).cuda().bfloat16()
    matrices = [p for p in net.blocks.parameters() if p.ndim == 2]
    taken = {id(p) for p in matrices}
    both = Muon(matrices), torch.optim.AdamW([p for p in net.parameters() if id(p) not in taken], fused=True)
    for step in range(STEPS):
        for _ in range(2):
            (net(tokens(32000, 8, 1025)) / 2).backward()
        for one in both:
            one.step()
        net.zero_grad(set_to_none=True)
        if step % EVERY == EVERY - 1:
            with torch.no_grad():
                for _ in range(4):
                    net(tokens(32000, 16, 1025)).float()
                text = tokens(32000, 4, 16)
                for _ in range(12):
                    text = torch.cat([text, net.head(net.hidden(text)[:, -1:]).float().argmax(2)], 1)


def unet() -> None:
    """segmentation of volumes, an averaged model, validation by windows"""
    draw = draws()

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            w = (1, 32, 64, 128, 256)
            conv = lambda a, b: nn.Sequential(nn.Conv3d(a, b, 3, 1, 1), nn.InstanceNorm3d(b), nn.LeakyReLU())  # noqa: E731
            self.down = nn.ModuleList(conv(a, b) for a, b in zip(w, w[1:]))
            self.up = nn.ModuleList(nn.ConvTranspose3d(b, a, 2, 2) for a, b in zip(w[1:], w[2:]))
            self.join = nn.ModuleList(conv(2 * a, a) for a in w[1:-1])
            self.head = nn.Conv3d(32, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            kept = []
            for part in self.down:
                x = part(x)
                kept.append(x)
                x = F.max_pool3d(x, 2)
            x = kept.pop()
            for up, join in zip(reversed(self.up), reversed(self.join)):
                x = join(torch.cat([up(x), kept.pop()], 1))
            return self.head(x)

    net = Net().cuda()
    average = torch.optim.swa_utils.AveragedModel(net)
    sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.99)
    for step in range(STEPS):
        found = net(values(2, 1, 64, 96, 96, dtype=torch.float32))
        F.cross_entropy(found, torch.randint(4, (2, 64, 96, 96)).cuda()).backward()
        sgd.step()
        sgd.zero_grad()
        average.update_parameters(net)
        if step % EVERY == EVERY - 1:
            with torch.no_grad():
                for _ in range(2):
                    deep, side = draw.randint(80, 160), draw.randint(128, 200)
                    whole = torch.zeros(1, 4, deep, side, side, device="cuda")
                    for z in range(0, deep - 63, 32):
                        whole[:, :, z : z + 64, :96, :96] += average(values(1, 1, 64, 96, 96, dtype=torch.float32))
                    whole.argmax(1)


def prefetch() -> None:
    """batches of any size brought on a stream of their own"""
    draw = draws()
    side = torch.cuda.Stream()
    net = nn.Sequential(
        cell(3, 64, 2), cell(64, 128, 2), cell(128, 256, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 1000)
    ).cuda()
    adam = torch.optim.AdamW(net.parameters())

    def bring() -> tuple[Tensor, Tensor]:
        many = draw.randint(24, 64)
        images, labels = torch.empty(many, 3, 224, 224, pin_memory=True), torch.randint(1000, (many,))
        with torch.cuda.stream(side):
            return images.cuda(non_blocking=True).div(255), labels.cuda(non_blocking=True)

    following = bring()
    for _ in range(STEPS):
        torch.cuda.current_stream().wait_stream(side)
        images, labels = following
        for tensor in following:
            tensor.record_stream(torch.cuda.current_stream())
        following = bring()
        F.cross_entropy(net(images), labels).backward()
        adam.step()
        adam.zero_grad()


def norms() -> None:
    """language model whose hooks keep a norm of each layer"""
    draw = draws()
    net = Decoder(VOCABULARY, 512, 8, 8).cuda()
    adam = torch.optim.AdamW(net.parameters())
    kept: list[Tensor] = []
    for module in net.modules():
        if isinstance(module, (nn.Linear, nn.LayerNorm)):
            module.register_forward_hook(lambda _module, _given, out: kept.append(out.detach().float().norm()))
    for p in net.parameters():
        p.register_hook(lambda gradient: kept.append(gradient.norm()) or None)
    for step in range(STEPS):
        net(tokens(VOCABULARY, 8, draw.randint(128, 768))).backward()
        adam.step()
        adam.zero_grad()
        if step % 5 == 4:
            torch.stack(kept).cpu()
            kept.clear()


def shampoo() -> None:
    """Shampoo, its roots taken every five steps"""
    draws()
    net = Decoder(8000, 768, 12, 6).cuda()
    matrices = [p for p in net.blocks.parameters() if p.ndim == 2]
    state = {p: [torch.zeros(side, side, device="cuda") for side in p.shape] for p in matrices}
    roots: dict[Tensor, list[Tensor]] = {}
    rest = torch.optim.AdamW([p for p in net.parameters() if p not in state])
    for step in range(STEPS):
        net(tokens(8000, 4, 513)).backward()
        with torch.no_grad():
            for p in matrices:
                left, right = state[p]
                left.addmm_(p.grad, p.grad.T)
                right.addmm_(p.grad.T, p.grad)
                if step % 5 == 0:
                    roots[p] = [(one @ one).div(one.norm() + 1) @ one for one in (left, right)]
                p.add_(roots[p][0] @ p.grad @ roots[p][1], alpha=-1e-3)
        rest.step()
        net.zero_grad()


def bank() -> None:
    """contrast with a bank of keys, its encoder an average"""
    draw = draws()
    encode = nn.Sequential(
        cell(3, 64, 2), cell(64, 128, 2), cell(128, 256, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 128)
    ).cuda()
    slow = copy.deepcopy(encode).requires_grad_(False)
    bank_ = torch.zeros(65536, 128, device="cuda")
    sgd = torch.optim.SGD(encode.parameters(), lr=0.03, momentum=0.9)
    for step in range(STEPS):
        crops = [values(32, 3, side, side, dtype=torch.float32) for side in (224, 224, 32 * draw.randint(3, 5))]
        with torch.no_grad():
            for a, b in zip(slow.parameters(), encode.parameters()):
                a.lerp_(b, 0.001)
            keys = F.normalize(slow(crops[0]))
        for crop in crops[1:]:
            found = F.normalize(encode(crop))
            chances = torch.cat([(found * keys).sum(1, keepdim=True), found @ bank_.T], 1) / 0.07
            F.cross_entropy(chances, torch.zeros(32, dtype=torch.long).cuda()).backward()
        sgd.step()
        sgd.zero_grad()
        bank_ = torch.cat([bank_[32:], keys])
        if step % EVERY == EVERY - 1:
            with torch.no_grad():
                features = torch.cat([encode(values(64, 3, 224, 224, dtype=torch.float32)) for _ in range(6)])
                (features @ features.T).topk(10)


def write() -> None:
    """answers written with caches that grow, then learned from"""
    draw = draws()
    net = Decoder(VOCABULARY, 768, 12, 6).cuda().bfloat16()
    adam = torch.optim.AdamW(net.parameters())
    for _ in range(STEPS):
        long = draw.randint(20, 60)
        with torch.no_grad():
            text = tokens(VOCABULARY, 16, 64)
            caches: list[Tensor | None] = [None] * len(net.blocks)
            for _ in range(long):
                x = net.tokens(text[:, -1:])
                for number, block in enumerate(net.blocks):
                    pair = block.attention.pair(block.norm1(x)).repeat(1, 16, 1)
                    cache = caches[number]
                    caches[number] = pair if cache is None else torch.cat([cache, pair], 1)
                    x = x + block.forward2(block.norm2(x))
                text = torch.cat([text, net.head(x).float().argmax(2)], 1)
        del caches, pair, cache
        net(tokens(VOCABULARY, 16, 64 + long)).backward()
        adam.step()
        adam.zero_grad()


def sampled_graphs() -> None:
    """graph network on neighbourhoods of drawn size"""
    draw, width = draws(), 256
    layers = nn.ModuleList(nn.Linear(2 * (602 if n == 0 else width), width) for n in range(3)).cuda()
    head = nn.Linear(width, 41).cuda()
    parts = nn.ModuleList([layers, head])
    adam = torch.optim.Adam(parts.parameters())

    def forward() -> Tensor:
        nodes = 1024
        sizes = [nodes := int(nodes * draw.uniform(2, 6)) for _ in range(3)][::-1] + [1024]
        x = values(sizes[0], 602, dtype=torch.float32)
        for layer, before, after in zip(layers, sizes, sizes[1:]):
            edges = after * draw.randint(5, 12)
            messages = x[torch.randint(before, (edges,)).cuda()]
            gathered = torch.zeros(after, x.shape[1], device="cuda").index_add(0, torch.randint(after, (edges,)).cuda(), messages)
            x = layer(torch.cat([x[:after], gathered], 1)).relu()
        return head(x)

    for step in range(STEPS):
        F.cross_entropy(forward(), tokens(41, 1024)).backward()
        adam.step()
        adam.zero_grad()
        if step % EVERY == EVERY - 1:
            with torch.no_grad():
                for _ in range(4):
                    forward().argmax(1)


#: Whether what a job keeps grows within a step, by its function.
GROWING = ("write",)
JOBS = (conformer, trees, ppo_control, sac, yolo, nanochat, unet, prefetch, norms, shampoo, bank, write, sampled_graphs)
