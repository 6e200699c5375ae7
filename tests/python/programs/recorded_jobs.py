"""Trains what some memory snapshots of real GPUs have recorded, written anew from what the snapshots show, and dumps its own.

    python recorded_jobs.py JOB FILE

Each temporary counts: a request and its release have to come at the place of the order where the recording has them.
"""

import sys
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass
class Job:
    """The sizes of a recorded transformer, and how it was trained."""

    length: int
    width: int
    inner: int
    layers: int
    heads: int
    autocast: bool
    #: Rotary angles are looked up by position, as a copy, in place of taken as they are.
    looked_up: bool
    #: The weights decay before the update, in place of after it.
    decays_first: bool


BATCH, WORDS = 4, 10_000
JOBS = {
    "cs336_ctx128_fp32_train": Job(128, 2560, 10_240, 32, 32, autocast=False, looked_up=True, decays_first=False),
    "cs336_medium_1024_train": Job(1024, 1024, 4096, 24, 16, autocast=True, looked_up=False, decays_first=True),
}


class Linear(nn.Module):
    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("...i,oi->...o", x, self.weight)


class Embedding(nn.Module):
    def __init__(self, job: Job):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(WORDS, job.width))
        self.looked_up = job.looked_up

    def forward(self, text: Tensor) -> Tensor:
        # A slice of all of it costs one more gradient of its size.
        weight = self.weight.narrow(1, 0, self.weight.shape[1]) if self.looked_up else self.weight
        return weight[text]


class Norm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        x = x * scale
        return self.weight * x


class Rotation(nn.Module):
    """Rotary positions: pairs of neighbours turn by an angle."""

    def __init__(self, job: Job):
        super().__init__()
        half = job.width // job.heads // 2
        angles = torch.outer(torch.arange(job.length), 10_000 ** -(torch.arange(half) / half))
        self.register_buffer("table", torch.stack((angles.cos(), angles.sin())), persistent=False)
        self.looked_up = job.looked_up

    def forward(self, x: Tensor, positions: Tensor | None) -> Tensor:
        cosine, sine = self.table if positions is None else self.table[:, positions]
        even, odd = x.unflatten(-1, (-1, 2)).movedim(-1, 0)
        first = cosine * even - sine * odd
        second = sine * even + cosine * odd
        return torch.stack((first, second), -1).flatten(-2)


def softmax(x: Tensor) -> Tensor:
    x = x - x.max(-1, keepdim=True)[0]
    raised = x.exp()
    return raised / raised.sum(-1, keepdim=True)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    scores = torch.einsum("...qd,...kd->...qk", query, key) / query.shape[-1] ** 0.5
    scores = torch.where(mask, scores, float("-inf"))
    weights = softmax(scores)
    return torch.einsum("...qk,...kd->...qd", weights, value)


class Attention(nn.Module):
    def __init__(self, job: Job, rotation: Rotation):
        super().__init__()
        self.query, self.key, self.value, self.out = (Linear(job.width, job.width) for _ in range(4))
        self.rotation = rotation
        self.heads = job.heads
        self.looked_up = job.looked_up

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        length = x.shape[1]
        query, key, value = self.query(x), self.key(x), self.value(x)
        query, key, value = self.split(query), self.split(key), self.split(value)
        if self.looked_up:
            positions = torch.arange(length, device=x.device)
        query = self.rotation(query, positions)
        key = self.rotation(key, positions)
        order = torch.arange(length, device=x.device)
        mask = order[:, None] >= order
        mixed = attend(query, key, value, mask)
        mixed = mixed.transpose(1, 2).flatten(-2)
        return self.out(mixed)


class FeedForward(nn.Module):
    def __init__(self, job: Job):
        super().__init__()
        self.gate, self.down, self.up = Linear(job.width, job.inner), Linear(job.inner, job.width), Linear(job.width, job.inner)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate(x)
        return self.down(gate * torch.sigmoid(gate) * self.up(x))


class Block(nn.Module):
    def __init__(self, job: Job, rotation: Rotation):
        super().__init__()
        self.attention, self.feed = Attention(job, rotation), FeedForward(job)
        self.before_attention, self.before_feed = Norm(job.width), Norm(job.width)

    def forward(self, x: Tensor) -> Tensor:
        attended = self.attention(self.before_attention(x))
        x = x + attended
        fed = self.feed(self.before_feed(x))
        return x + fed


class Transformer(nn.Module):
    def __init__(self, job: Job):
        super().__init__()
        self.words = Embedding(job)
        rotation = Rotation(job)
        self.blocks = nn.ModuleList(Block(job, rotation) for _ in range(job.layers))
        self.norm, self.head = Norm(job.width), Linear(job.width, WORDS)

    def forward(self, text: Tensor) -> Tensor:
        x = self.words(text)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x)


def log_softmax(x: Tensor) -> Tensor:
    most = x.max(-1, keepdim=True)[0]
    x = x - most
    return x - x.exp().sum(-1, keepdim=True).log()


def cross_entropy(x: Tensor, wanted: Tensor) -> Tensor:
    lost = -log_softmax(x)
    return lost.gather(-1, wanted.unsqueeze(-1)).mean()


class AdamW(torch.optim.Optimizer):
    def __init__(self, parameters, job: Job):
        super().__init__(parameters, {})
        self.decays_first = job.decays_first

    def step(self):
        rate = 1e-3
        for parameter in self.param_groups[0]["params"]:
            state, gradient = self.state[parameter], parameter.grad.data
            if self.decays_first:
                parameter.data -= rate * parameter.data
            mean = state.get("mean", torch.zeros_like(gradient))
            square = state.get("square", torch.zeros_like(gradient))
            new_mean = 0.9 * mean + 0.1 * gradient
            new_square = 0.999 * square + 0.001 * gradient**2
            parameter.data -= rate * new_mean / (new_square.sqrt() + 1e-8)
            if not self.decays_first:
                parameter.data -= rate * parameter.data
            state["mean"], state["square"] = new_mean, new_square


def train(job: Job, file: str) -> None:
    with torch.device("cuda"):
        model = Transformer(job)
    optimizer = AdamW(model.parameters(), job)
    text = torch.randint(WORDS, (BATCH, job.length), device="cuda")
    wanted = torch.randint(WORDS, (BATCH, job.length), device="cuda")

    if job.autocast:
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(text)
            loss = cross_entropy(logits, wanted)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del logits, loss
        torch.cuda.memory._record_memory_history()
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(text)
            loss = cross_entropy(logits, wanted)
        loss.backward()
        optimizer.step()
    else:
        logits = model(text)
        torch.cuda.memory._record_memory_history()
        logits = model(text)
        loss = cross_entropy(logits.flatten(0, 1), wanted.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.memory._dump_snapshot(file)


#: Height and width of the images that the automaton grows over, coarse to fine, and the updates at each.
SMALL = [(20, 20), (40, 10), (80, 10), (80, 10), (160, 10), (320, 10)]
LARGE = [(302, 20), (604, 10), (1208, 10), (1208, 10), (2415, 10), (4830, 10)]
SHOWN, STATE = 3, 16


class Automaton(nn.Module):
    """A cellular automaton of an image's channels and hidden ones, whose rule is a kernel of its own that writes where it is told to."""

    @staticmethod
    def rule(state: Tensor, out: Tensor) -> None:
        """What the kernel asks the allocator for: nothing."""

    def forward(self, state: Tensor, updates: int) -> Tensor:
        for _ in range(updates):
            hidden = torch.empty(1, STATE - SHOWN, *state.shape[2:], device=state.device)
            self.rule(state.contiguous(), hidden)
            state = torch.cat((state[:, :SHOWN], hidden), 1)
        return state


def grow(file: str) -> None:
    automaton = Automaton()
    torch.zeros(1, device="cuda")
    torch.cuda.memory._record_memory_history()
    for levels in SMALL, LARGE:
        size, updates = levels[0]
        state = automaton(torch.zeros(1, size, size, STATE, device="cuda").permute(0, 3, 1, 2), updates)
        for size, updates in levels[1:]:
            state = nn.functional.interpolate(state, size=(size, size))
            state = automaton(state, updates)
    torch.cuda.memory._dump_snapshot(file)


name, file = sys.argv[1:]
if name == "octree_nca_small":
    with torch.no_grad():
        grow(file)
else:
    train(JOBS[name], file)
