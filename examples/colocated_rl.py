"""Reinforcement learning with training and rollout on one GPU: how much of it is stranded when they change places.

Each step trains on texts of different lengths, takes the optimizer's states to the host, wakes the rollout engine (weights of its own
are filled from the trainer's), gives cached memory back (`torch.cuda.empty_cache()`), and takes what is free for a key-value
cache. Then it generates, puts the engine to sleep, gives memory back and loads the states again. Stranded is what the process holds of the GPU
beyond its live tensors right after each `empty_cache()`: nobody can use it, neither the engine nor another process.

    stalloc run -- python examples/colocated_rl.py                                     # ours
    python examples/colocated_rl.py                                                    # PyTorch's allocator
    PYTORCH_ALLOC_CONF=expandable_segments:True python examples/colocated_rl.py        # with expandable segments
    stalloc run -- python examples/colocated_rl.py --sleep                             # states and all else by stalloc.sleep()
"""

import argparse
import contextlib
import json
import random
from typing import Iterator

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH, VOCABULARY = 4096, 32000


class Block(nn.Module):
    """A gated feed-forward layer behind an attention's projections: sizes and lifetimes of a transformer's."""

    def __init__(self) -> None:
        super().__init__()
        self.attend, self.project = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = nn.Linear(WIDTH, 11008, bias=False), nn.Linear(WIDTH, 11008, bias=False)
        self.down = nn.Linear(11008, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.attend(x).unflatten(-1, (3, 32, 128)).permute(1, 2, 0, 3)
        attended = nn.functional.scaled_dot_product_attention(query[None], key[None], value[None], is_causal=True)[0]
        x = x + self.project(attended.transpose(0, 1).flatten(1))
        return x + self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Policy(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.training else block(x)
        return self.head(x).float().log_softmax(-1)


class Engine:
    """The rollout's side: weights while it is awake, and a key-value cache of all that is free but a reserve."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.weights, self.cache = policy, [], []

    def wake(self) -> None:
        self.weights = [parameter.detach().clone() for parameter in self.policy.parameters()]

    def take_cache(self, reserve: int = 4 << 30) -> int:
        free, _ = torch.cuda.mem_get_info()
        size = max(free - reserve, 0) // len(self.policy.blocks)
        self.cache = [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in self.policy.blocks]
        return size * len(self.policy.blocks)

    def sleep(self) -> None:
        self.weights.clear()
        self.cache.clear()


def stranded(context: int) -> int:
    """Bytes that the process holds and no live tensor uses, after everything cached was given back."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return total - free - context - torch.cuda.memory_allocated()


@contextlib.contextmanager
def away(policy: Policy, optimizer: torch.optim.Optimizer, sleeps: bool) -> Iterator[int]:
    """The optimizer's states are on the host, and with `sleeps` all but the policy: so many bytes count as live that are not there."""
    if sleeps:
        import stalloc

        with stalloc.sleep(keep=policy) as slept:
            yield slept.bytes
    else:
        states_to(optimizer, "cpu")
        yield 0
        states_to(optimizer, "cuda")


def states_to(optimizer: torch.optim.Optimizer, device: str) -> None:
    """Move the optimizer's states."""
    for state in optimizer.state.values():
        for name, value in state.items():
            if torch.is_tensor(value) and value.dim():
                state[name] = value.to(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--samples", type=int, default=6, help="texts of a step")
    parser.add_argument("--sleep", action="store_true", help="under `stalloc run`: all but the policy sleeps during rollout")
    parser.add_argument("--longest", type=int, default=12000, help="tokens of the longest text")
    options = parser.parse_args()
    torch.cuda.init()
    free, total = torch.cuda.mem_get_info()
    context = total - free
    chance = random.Random(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        policy = Policy(options.layers)
    engine = Engine(policy)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-6)
    worst = {"training": 0, "rollout": 0}
    caches = []
    for step in range(options.steps):
        kept = []
        for _ in range(options.samples):
            tokens = torch.randint(VOCABULARY, (chance.randint(500, options.longest),), device="cuda")
            chosen = policy(tokens).gather(1, tokens[:, None])
            chosen.mean().backward()
            # What the next rollout is compared with: it outlives the step, and is small.
            kept.append((tokens, chosen.detach().clone(), torch.randn(len(tokens), 128, device="cuda")))
        optimizer.step()
        optimizer.zero_grad()
        with away(policy, optimizer, options.sleep) as asleep:
            engine.wake()
            after_training = stranded(context) + asleep
            caches.append(engine.take_cache())
            with torch.no_grad():
                policy.eval()
                for _ in range(options.samples):
                    policy(torch.randint(VOCABULARY, (chance.randint(100, 2000),), device="cuda"))
                policy.train()
            engine.sleep()
            after_rollout = stranded(context) + asleep
        worst = {"training": max(worst["training"], after_training), "rollout": max(worst["rollout"], after_rollout)}
        print(f"step {step}: stranded {after_training >> 20} MiB after training, {after_rollout >> 20} MiB after rollout", flush=True)
    share = max(worst.values()) / total
    print(json.dumps({"stranded": worst, "share": share, "smallest_cache": min(caches), "total": total}))


if __name__ == "__main__":
    main()
