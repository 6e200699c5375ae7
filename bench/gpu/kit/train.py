"""Trains one of the kit's models and writes what it cost as JSON. Only PyTorch is needed; every size is drawn on the host.

The figures are PyTorch's own, so the same program serves every allocator; what stalloc says of itself is added where the
process runs under it. A full GPU is a result, not an error.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable

# Triton's kernels are compiled in this process: PyTorch 2.11 was seen to wait for minutes at its end for workers that it had started.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import figures
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

#: Layers, width and vocabulary of each model; tokens of a sequence, or pixels of a side.
SHAPES = {
    "llama-1b": (22, 2048, 32000, 2048),
    "llama-3b": (24, 3072, 32000, 2048),
    "llama-small": (8, 1024, 32000, 1024),
    "gpt2": (24, 1024, 50257, 1024),
    "moe": (12, 1024, 32000, 1024),
    "lengths": (16, 1536, 32000, 2048),
    "compiled": (4, 1024, 32000, 1024),
    "conv": (4, 64, 1000, 224),
}
TINY = (2, 64, 512, 64)
#: Models whose activations are computed again in the backward pass.
RECOMPUTED = ("llama-1b", "llama-3b", "gpt2")
EXPERTS, CHOICES = 8, 2


class Block(nn.Module):
    """A layer as Llama has them: normalised attention with turned keys, a gated feed-forward network."""

    def __init__(self, width: int, experts: int, draw: random.Random) -> None:
        super().__init__()
        self.heads = max(width // 128, 1)
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.feed = Experts(width, experts, draw) if experts else FeedForward(width)

    def forward(self, x: Tensor, turn: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, turn), rotate(k, turn)
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.feed(self.norm2(x))


def rotate(x: Tensor, turn: Tensor) -> Tensor:
    """Rotary position embedding."""
    left, right = x.chunk(2, -1)
    return x * turn.cos() + torch.cat([-right, left], -1) * turn.sin()


class FeedForward(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        hidden = width * 11 // 4
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """Each expert gets a number of tokens that is drawn anew in each pass, on the host."""

    def __init__(self, width: int, experts: int, draw: random.Random) -> None:
        super().__init__()
        self.draw = draw
        self.experts = nn.ModuleList(FeedForward(width) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, 1)
        wants = [self.draw.uniform(0.5, 1.5) for _ in self.experts]
        total = CHOICES * len(rows)
        counts = [int(total * want / sum(wants)) for want in wants]
        counts[0] += total - sum(counts)
        order = torch.arange(total).remainder_(len(rows)).cuda()
        made = [expert(part) for expert, part in zip(self.experts, rows[order].split(counts))]
        return torch.zeros_like(rows).index_add(0, order, torch.cat(made)).view_as(x)


class Decoder(nn.Module):
    def __init__(self, shape: tuple[int, int, int, int], recompute: bool, experts: int, draw: random.Random) -> None:
        super().__init__()
        layers, width, vocabulary, _ = shape
        self.recompute = recompute
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, experts if i % 2 else 0, draw) for i in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, text: Tensor) -> Tensor:
        x = self.tokens(text)
        size = x.shape[2] // self.blocks[0].heads
        speeds = 1e4 ** -(torch.arange(size, device=x.device) % (size // 2) * 2 / size)
        turn = (torch.arange(x.shape[1], device=x.device)[:, None] * speeds).to(x.dtype)
        for block in self.blocks:
            x = checkpoint(block, x, turn, use_reentrant=False) if self.recompute else block(x, turn)
        return functional.cross_entropy(self.head(self.norm(x))[:, :-1].flatten(0, 1), text[:, 1:].flatten())


class Convolutions(nn.Module):
    """A residual net: cuDNN's convolutions, with workspaces."""

    def __init__(self, shape: tuple[int, int, int, int]) -> None:
        super().__init__()
        stages, width, classes, _ = shape
        self.stem = nn.Conv2d(3, width, 7, 2, 3)
        self.stages = nn.ModuleList()
        for stage in range(stages):
            inner, outer = width << max(stage - 1, 0), width << stage
            self.stages.append(nn.Sequential(nn.BatchNorm2d(inner), nn.ReLU(), nn.Conv2d(inner, outer, 3, 2, 1)))
            self.stages.append(nn.Sequential(nn.BatchNorm2d(outer), nn.ReLU(), nn.Conv2d(outer, outer, 3, 1, 1)))
        self.head = nn.Linear(width << (stages - 1), classes)

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.stem(pictures)
        for stage in self.stages:
            made = stage(x)
            x = made + x if made.shape == x.shape else made
        made = self.head(x.mean((2, 3)))
        return functional.cross_entropy(made, torch.zeros(len(made), dtype=torch.long, device=made.device))


def arguments() -> argparse.Namespace:
    parser = figures.parser()
    parser.add_argument("--model", choices=SHAPES, required=True)
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--warm-up", type=int, default=2, help="steps before times count")
    parser.add_argument("--one-step", action="store_true", help="stalloc sees the whole run as one step, so that it learns no plan")
    parser.add_argument("--limit-mib", type=int, help="memory that this process may take")
    parser.add_argument("--deterministic", action="store_true", help="only kernels that give the same bits each time")
    parser.add_argument("--snapshot", type=Path, help="keep PyTorch's memory history, and write it there")
    return parser.parse_args()


def build(options: argparse.Namespace, shape: tuple[int, int, int, int], draw: random.Random) -> tuple[Any, Callable[[], Tensor]]:
    """The model, its weights random, and what makes a batch."""
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        if options.model == "conv":
            model: Any = Convolutions(shape)
        else:
            model = Decoder(shape, options.model in RECOMPUTED, EXPERTS if options.model == "moe" else 0, draw)
    torch.set_default_dtype(torch.float32)
    *_, vocabulary, length = shape

    def batch() -> Tensor:
        if options.model == "conv":
            return torch.rand(options.micro_batch, 3, length, length).cuda().bfloat16()
        tokens = draw.randint(length // 4, length) if options.model == "lengths" else length
        return torch.randint(vocabulary, (options.micro_batch, tokens)).cuda()

    return model, batch


def train(options: argparse.Namespace, found: dict[str, Any]) -> None:
    """All steps, timed one by one."""
    torch.manual_seed(0)
    shape = (2, 16, 10, 64) if options.tiny and options.model == "conv" else TINY if options.tiny else SHAPES[options.model]
    found["shape"] = shape
    model, batch = build(options, shape, random.Random(0))
    found["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    if options.model == "compiled":
        model = torch.compile(model, backend="aot_eager" if options.tiny else "inductor")
    found.update(losses=[], step_seconds=[])
    tokens = 0
    for step in range(options.steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        text = batch()
        loss = model(text)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        found["losses"].append(float(loss.item()).hex())
        torch.cuda.synchronize()
        found["step_seconds"].append(time.perf_counter() - start)
        tokens += text.shape[0] * (text.shape[1] if text.dim() == 2 else 1) if step >= options.warm_up else 0
    counted = found["step_seconds"][options.warm_up :]
    if counted:
        found["tokens_per_second"] = tokens / sum(counted)
        found["median_step_seconds"] = statistics.median(counted)
    weights = torch.stack([parameter.detach().double().sum() for parameter in model.parameters()])
    found["weights"] = float(weights.sum().item()).hex()


def outside() -> int:
    """Bytes of the GPU that are taken and that PyTorch's allocator does not hold: context, libraries, other processes."""
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def main() -> None:
    options = arguments()
    found: dict[str, Any] = {"model": options.model, "micro_batch": options.micro_batch, "oom": False}
    found.update(warm_up=options.warm_up, limit_mib=options.limit_mib)
    if options.deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cuda.enable_cudnn_sdp(False)  # its backward pass adds in any order
    torch.cuda.init()
    torch.cuda.synchronize()
    found["context"] = outside()
    if options.limit_mib:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min((options.limit_mib << 20) / total, 1.0))
    if options.snapshot:
        torch.cuda.memory._record_memory_history(max_entries=1_000_000, context=None)
    stalloc = sys.modules.get("stalloc")
    try:
        with stalloc.step() if options.one_step and stalloc else contextlib.nullcontext():
            train(options, found)
    except torch.cuda.OutOfMemoryError as error:
        found.update(oom=True, message=str(error).splitlines()[0])
    if options.snapshot:
        torch.cuda.memory._dump_snapshot(str(options.snapshot))
    found.update(outside_at_the_end=outside(), backend=torch.cuda.get_allocator_backend(), total=torch.cuda.mem_get_info()[1])
    figures.write(options.output, found)


if __name__ == "__main__":
    main()
