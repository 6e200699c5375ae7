"""What giving the GPU away between steps takes, by the clock of a dry run: `bench/results/sleeping.md`.

    PYTHONPATH=$(scripts/python-package) $(scripts/python-env) bench/sleeping.py [WAY ...] [--write]

Needs torch_memory_saver 0.0.10 for the row of that name. Ways that are not named keep what the page says of them.
"""

from __future__ import annotations

import argparse
import ctypes
import sysconfig
import tempfile
from pathlib import Path
from typing import Any, Callable

from lib import pages, runs

GIB = 1 << 30
WAYS = {
    "stalloc": "`stalloc.sleep()`, `stalloc.wake()`",
    "saver": "torch_memory_saver 0.0.10, the whole process, pinned backup",
    "retained": "the same with `retain_cpu_backup`, and `empty_cache()` before",
    "pinned": "each tensor to a pinned buffer of its own, kept",
    "plain": "`.cpu()`, `.cuda()` of each tensor",
}
HEAD = pages.head(["way", "copied each way, GiB", "first out, s", "first back, s", "out, s", "back, s", "left on the GPU, MiB"])


def acts_of(way: str, tensors: list[Any]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """What gives the GPU away, and what has it back."""
    import torch

    if way == "stalloc":
        import stalloc

        return stalloc.sleep, stalloc.wake
    if way in ("saver", "retained"):
        from torch_memory_saver import torch_memory_saver

        if way == "retained":
            torch_memory_saver.retain_cpu_backup = True
            torch.cuda.empty_cache()
        return torch_memory_saver.pause, torch_memory_saver.resume
    kept: list[Any] = []

    def out() -> None:
        if way == "pinned" and not kept:
            kept.extend(torch.empty_like(tensor, device="cpu", pin_memory=True) for tensor in tensors)
        for index, tensor in enumerate(tensors):
            tensor.data = kept[index].copy_(tensor, non_blocking=True) if way == "pinned" else tensor.cpu()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    def back() -> None:
        for tensor in tensors:
            tensor.data = tensor.to("cuda", non_blocking=way == "pinned")

    return out, back


def measure(way: str) -> None:
    """A trainer of 1.68 B parameters of 32 bits with AdamW: what lives between its steps is 18.75 GiB."""
    import torch

    clock = ctypes.CDLL(None).stalloc_dryrun_clock
    clock.restype = ctypes.c_uint64
    torch.cuda.init()
    context = torch.cuda.mem_get_info()[0]
    with torch.device("cuda"):
        model = torch.nn.Sequential(*(torch.nn.Linear(8192, 8192, bias=False) for _ in range(25)))
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(torch.ones(64, 8192, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()

    for _ in range(3):
        step()
    states = [value for state in optimizer.state.values() for value in state.values() if value.is_cuda]
    tensors = [*model.parameters(), *states]
    seconds: list[float] = []
    acts = acts_of(way, tensors)
    live, copied = sum(tensor.nbytes for tensor in tensors), torch.cuda.memory_reserved()
    for _ in range(3):
        if way == "retained":
            torch.cuda.empty_cache()
        for act in acts:
            began = clock(0)
            moved = act()
            torch.cuda.synchronize()
            seconds.append((clock(0) - began) / 1e9)
            if len(seconds) % 2:
                left = context - torch.cuda.mem_get_info()[0]
        step()
    counts = {"stalloc": lambda: moved.bytes, "saver": lambda: copied, "retained": lambda: copied}
    runs.tell({"copied": counts.get(way, lambda: live)(), "seconds": seconds, "left": left})


def row(way: str) -> str:
    program = runs.own("--child", way)
    environment = runs.environment()
    if way in ("saver", "retained"):
        from torch_memory_saver.utils import get_binary_path_from_package

        environment |= {"TMS_INIT_ENABLE": "1", "TMS_INIT_ENABLE_CPU_BACKUP": "1"}
        # Before the stand-in, which `stalloc trace` puts there, and with PyTorch's CUDA runtime.
        library = get_binary_path_from_package("torch_memory_saver_hook_mode_preload")
        runtime = ":".join(map(str, Path(sysconfig.get_path("purelib")).glob("nvidia/*/lib")))
        shell = f'export LD_PRELOAD="{library}:$LD_PRELOAD" LD_LIBRARY_PATH="$LD_LIBRARY_PATH:{runtime}"; exec "$@"'
        program = ["sh", "-c", shell, "sh", *program]
    with tempfile.TemporaryDirectory() as folder:
        start = ["run"] if way == "stalloc" else ["trace", "-o", folder]
        found = runs.told(runs.stalloc(*start, *runs.GPU, "--", *program, env=environment).stdout)
    seconds = [f"{one:.2f}" for one in (*found["seconds"][:2], *found["seconds"][-2:])]
    return pages.line([WAYS[way], f"{found['copied'] / GIB:.2f}", *seconds, found["left"] >> 20])


def main() -> None:
    parser = runs.parser("sleeping.md")
    parser.add_argument("ways", nargs="*", choices=[*WAYS, []], help="all by default")
    parser.add_argument("--child", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return measure(options.child)
    for way in options.ways or WAYS:
        made = row(way)
        print(made, flush=True)
        if options.write:
            pages.put("ways", HEAD, [made], "sleeping.md")


if __name__ == "__main__":
    main()
