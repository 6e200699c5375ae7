"""Pinned memory of jobs that offload: what is held for what they have, by PyTorch's allocator of pinned memory and by stalloc's.

    PYTHONPATH=$(scripts/python-package) $(scripts/python-env) bench/pinned.py      # on the stand-in GPU

What a job has is counted by the job: the bytes of each pinned tensor from when it is made until it is gone.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import page

ROOT = Path(__file__).resolve().parent.parent
WAYS = ("PyTorch", "stalloc")
STEPS = 6


class Counted:
    """Counts the bytes of pinned tensors that are alive."""

    def __init__(self) -> None:
        import torch

        self.live = self.peak = self.made = 0
        self.lock = threading.RLock()  # a tensor may go while another is counted
        for owner, name in ((torch, "empty"), (torch.Tensor, "pin_memory")):
            self.count(owner, name)

    def count(self, owner, name: str) -> None:
        function = getattr(owner, name)

        def counted(*arguments, **options):
            tensor = function(*arguments, **options)
            if name == "pin_memory" or options.get("pin_memory"):
                self.change(tensor.nbytes)
                weakref.finalize(tensor, self.change, -tensor.nbytes)
            return tensor

        setattr(owner, name, counted)

    def change(self, bytes: int) -> None:
        with self.lock:
            self.made += bytes > 0
            self.live += bytes
            self.peak = max(self.peak, self.live)


def model():
    sys.path.insert(0, str(ROOT / "examples"))
    import gpt
    import torch

    return gpt.GPT(32000, 1024, 1280, 20, 8).to("cuda", torch.bfloat16)


def to_host(tensor):
    import torch

    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)


def optimizer():
    """Optimizer states of fp32 and gradients on the host, one tensor for each parameter."""
    import torch

    net = model()
    kept = [[torch.empty(p.shape, dtype=torch.float32, pin_memory=True) for _ in range(3)] for p in net.parameters()]
    for _ in range(STEPS):
        net(torch.zeros(4, 513, dtype=torch.long, device="cuda")).backward()
        gradients = [to_host(p.grad) for p in net.parameters()]
        torch.cuda.synchronize()
        for p, (weight, *_), _gradient in zip(net.parameters(), kept, gradients):
            p.data.copy_(weight, non_blocking=True)
        net.zero_grad()
        del gradients
    return kept


def activations(lengths=(513, 777, 300, 1000)):
    """Activations on the host (`save_on_cpu`), texts of four lengths."""
    import torch

    net = model()
    for step in range(STEPS):
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            loss = net(torch.zeros(2, lengths[step % len(lengths)], dtype=torch.long, device="cuda"))
        loss.backward()
        net.zero_grad()


class Images:
    """Images of a size of their own, in bytes."""

    def __len__(self) -> int:
        return 240

    def __getitem__(self, index: int):
        import torch

        height, width = 200 + index * 37 % 300, 220 + index * 53 % 280
        return torch.zeros(3, height, width), torch.tensor(index)


def loader():
    """A data loader with `pin_memory`, images of many sizes."""
    from torch.utils.data import DataLoader

    for _ in range(2):
        for batch in DataLoader(Images(), batch_size=12, num_workers=2, pin_memory=True, collate_fn=list):
            for image, _label in batch:
                image.to("cuda", non_blocking=True)


def weights():
    """Weights of a model kept on the host, layer by layer to the GPU and back."""
    import torch

    net = model()
    kept = {name: to_host(p) for name, p in net.named_parameters()}
    for _ in range(STEPS):
        for name, p in net.named_parameters():
            p.data = kept[name].to("cuda", non_blocking=True)
            changed = to_host(p.data)
            torch.cuda.current_stream().synchronize()
            kept[name] = changed
    return kept


def together():
    """Optimizer states, activations and a data loader in one job."""
    held = optimizer()
    activations()
    loader()
    return held


WORKLOADS = (optimizer, activations, loader, weights, together)


def child(name: str) -> None:
    import torch

    counted = Counted()
    torch.cuda.init()
    held = next(workload for workload in WORKLOADS if workload.__name__ == name)()
    torch.cuda.synchronize()
    stats = torch.cuda.host_memory_stats()
    print(
        json.dumps(
            {
                "live": counted.peak,
                "tensors": counted.made,
                "reserved": stats["allocated_bytes.peak"],
                "calls": stats["num_host_alloc"] + stats["num_host_free"],
            }
        )
    )
    del held


def measure(name: str, way: str) -> dict[str, int]:
    import stalloc

    program = str(Path(stalloc.__file__).parent / "_bin" / "stalloc")
    env = {**os.environ, "STALLOC_PINNED": str(int(way == "stalloc"))}
    env.pop("PYTHONPATH", None)
    command = [program, "run", "--dry-run", "h100-80gb", "--", sys.executable, __file__, "--child", name]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"live"')]
    if done.returncode != 0 or not lines:
        raise SystemExit(f"{name} under {way} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return json.loads(lines[-1])


def row(workload) -> str:
    figures = {way: measure(workload.__name__, way) for way in WAYS}
    ratios = [f"{found['reserved'] / found['live']:.3f}" for found in figures.values()]
    calls = [f"{found['calls']:,}" for found in figures.values()]
    what = " ".join((workload.__doc__ or "").split()).rstrip(".")
    ours = figures["stalloc"]
    return f"| {what} | {ours['tensors']:,} | {ours['live'] >> 20:,} | {' | '.join(ratios)} | {' | '.join(calls)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--only", help="one workload, by the name of its function; otherwise all, and the page is written anew")
    options = parser.parse_args()
    if options.child:
        return child(options.child)
    lines = ["| job | tensors | live, MiB | PyTorch | stalloc | calls, PyTorch | calls, stalloc |", "|---|---:|---:|---:|---:|---:|---:|"]
    for workload in WORKLOADS:
        if options.only in (None, workload.__name__):
            lines.append(row(workload))
            print(lines[-1], flush=True)
    if options.only is None:
        page.write("pinned", "\n".join(lines), "pinned.md")


if __name__ == "__main__":
    main()
