"""A loop like reinforcement learning's: generate, then train, each with the other's tensors kept on the host.

While the policy generates, the optimizer's states are on the host and a cache of keys and values fills the device;
then the cache goes, the states come back and the policy trains on what it wrote, of another length each time. After
every fourth step the weights are saved, in full precision.
"""

import random

import torch
from gpt import arguments, build
from torch import nn


def move_states(optimizer: torch.optim.Optimizer, device: str) -> None:
    """Move the optimizer's states to ``device``."""
    for state in optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and value.dim() > 0:
                state[name] = value.to(device, non_blocking=True)


def generate(model: nn.Module, prompts: int, options, length: int) -> torch.Tensor:
    """Write ``length`` tokens, with a cache that grows block by block as an inference engine's does."""
    cache = []
    with torch.no_grad():
        for start in range(0, length, 64):
            shape = (options.layers, 2, prompts, 64, options.width)
            cache.append(torch.empty(shape, dtype=torch.bfloat16, device="cuda"))
            text = torch.randint(options.vocabulary, (prompts, min(start + 64, options.length)), device="cuda")
            model(text)
    return torch.randint(options.vocabulary, (prompts, length))


def save(model: nn.Module) -> list[torch.Tensor]:
    """The weights in full precision on the host; each is converted on the device."""
    return [weight.detach().float().cpu() for weight in model.parameters()]


def main() -> None:
    options = arguments().parse_args()
    draw = random.Random(options.seed)
    torch.manual_seed(options.seed)
    model = build(options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for step in range(options.steps):
        move_states(optimizer, "cpu")
        length = draw.randrange(options.length // 2, options.length)
        written = generate(model, 4 * options.batch, options, length)
        move_states(optimizer, "cuda")
        for batch in written.split(options.batch):
            model(batch.cuda()).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 4 == 3:
            save(model)
        print(f"step {step}: length {length}, reserved {torch.cuda.memory_reserved() >> 20} MiB")


if __name__ == "__main__":
    main()
