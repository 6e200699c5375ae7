"""What the jobs share: their options, the random numbers that sizes are drawn from, and the layers of a transformer.

Every size is drawn on the host, so that a job makes the same requests on a GPU and on a dry run.
"""

import argparse
import random
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional


def start(description: str | None, **sizes: int) -> tuple[argparse.Namespace, random.Random]:
    """A job's options, which are --seed, --steps and its sizes with their defaults; and what it draws sizes from."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in dict(seed=0, steps=5, **sizes).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    return options, random.Random(options.seed)


def on_gpu(make: Callable[[], nn.Module], dtype: torch.dtype = torch.float32) -> nn.Module:
    """A model that is made on the GPU at once."""
    torch.set_default_dtype(dtype)
    with torch.device("cuda"):
        model = make()
    torch.set_default_dtype(torch.float32)
    return model


def tokens(vocabulary: int, *shape: int) -> Tensor:
    """Random token numbers, made on the host as a loader does."""
    return torch.randint(vocabulary, shape).cuda()


def values(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """A tensor that came from the host; what it holds does not matter."""
    return torch.empty(shape, dtype=dtype).cuda()


def indices(bound: int, count: int) -> Tensor:
    """``count`` random indices below ``bound``."""
    return torch.randint(bound, (count,)).cuda()


def skewed(draw: random.Random, least: int, most: int) -> int:
    """A length between two bounds, most often short, as sentences and utterances are."""
    return min(most, least + int(draw.expovariate(3 / (most - least))))


def cosine(optimizer: torch.optim.Optimizer, step: int, steps: int) -> None:
    """Set the learning rate of a step."""
    for group in optimizer.param_groups:
        group["lr"] = 1e-4 * (1 - 0.9 * step / max(1, steps))


class Attention(nn.Module):
    """Attention with several heads, to the input itself or to ``memory``."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.pair, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, memory: Tensor | None = None, causal: bool = False, mask: Tensor | None = None) -> Tensor:
        q = self.query(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
        pair = self.pair(x if memory is None else memory)
        k, v = pair.unflatten(2, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        return self.out(found.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Two layers with a wide one between them."""

    def __init__(self, width: int, factor: int = 4) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, factor * width), nn.Linear(factor * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(functional.gelu(self.up(x)))


class Block(nn.Module):
    """A layer of a transformer; with ``cross``, of a decoder that looks at an encoder's output."""

    def __init__(self, width: int, heads: int, cross: bool = False) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2, self.forward2 = nn.LayerNorm(width), FeedForward(width)
        self.norm3 = nn.LayerNorm(width) if cross else None
        self.cross = Attention(width, heads) if cross else None

    def forward(self, x: Tensor, memory: Tensor | None = None, causal: bool = False, mask: Tensor | None = None) -> Tensor:
        x = x + self.attention(self.norm1(x), causal=causal, mask=mask)
        if self.cross is not None:
            x = x + self.cross(self.norm3(x), memory)
        return x + self.forward2(self.norm2(x))


class Decoder(nn.Module):
    """A language model; gives the hidden states, or with targets the loss."""

    def __init__(self, vocabulary: int, width: int, heads: int, layers: int, length: int = 8192) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def hidden(self, text: Tensor) -> Tensor:
        x = self.tokens(text) + self.places(torch.arange(text.shape[1], device=text.device))
        for block in self.blocks:
            x = block(x, causal=True)
        return self.norm(x)

    def forward(self, text: Tensor) -> Tensor:
        logits = self.head(self.hidden(text[:, :-1]))
        return functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())


def conv(before: int, after: int, stride: int = 1, size: int = 3) -> nn.Sequential:
    """A convolution, a normalisation and an activation."""
    layer = nn.Conv2d(before, after, size, stride, size // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(after), nn.ReLU(inplace=True))


class Residual(nn.Module):
    """Two convolutions around which the input goes."""

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        self.first, self.second = conv(before, after, stride), conv(after, after)
        self.short = conv(before, after, stride, 1) if stride > 1 or before != after else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)) + self.short(x)


class Backbone(nn.Module):
    """A residual network; gives the maps of its last three stages."""

    def __init__(self, width: int = 64, blocks: tuple[int, ...] = (3, 4, 6, 3)) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, width, 2, 7), nn.MaxPool2d(3, 2, 1))
        stages, before = [], width
        for stage, count in enumerate(blocks):
            after = width << stage
            layers = [Residual(before if i == 0 else after, after, 2 if i == 0 and stage else 1) for i in range(count)]
            stages.append(nn.Sequential(*layers))
            before = after
        self.stages = nn.ModuleList(stages)

    def forward(self, images: Tensor) -> list[Tensor]:
        maps, x = [], self.stem(images)
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return maps[1:]
