"""Memory of the GPU that PyTorch's allocator does not hold, after each library that a job may use has been used once: MiB, as the driver counts."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable

import figures
import torch
from torch import nn
from torch.nn import functional


def matrix(kind: torch.dtype) -> None:
    left = torch.randn(1024, 1024, device="cuda").to(kind)
    torch.mm(left, left)


def layers() -> None:
    """The kernels of a training step in plain PyTorch."""
    model = nn.Sequential(nn.Linear(256, 256), nn.LayerNorm(256), nn.GELU(), nn.Dropout(), nn.Linear(256, 256)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    functional.cross_entropy(model(torch.randn(64, 256, device="cuda")), torch.randint(256, (64,), device="cuda")).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def attention() -> None:
    query = torch.randn(2, 8, 512, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    functional.scaled_dot_product_attention(query, query, query, is_causal=True).sum().backward()


def convolution() -> None:
    layer = nn.Conv2d(64, 64, 3, padding=1).cuda().bfloat16()
    layer(torch.randn(8, 64, 56, 56, device="cuda", dtype=torch.bfloat16)).sum().backward()


def sorting() -> None:
    torch.randn(1 << 20, device="cuda").sort()
    torch.randn(1 << 20, device="cuda").topk(8)


def communicator() -> None:
    with tempfile.NamedTemporaryFile() as store:
        torch.distributed.init_process_group("nccl", f"file://{store.name}", rank=0, world_size=1, device_id=torch.device("cuda", 0))
        torch.distributed.all_reduce(torch.ones(1 << 20, device="cuda"))
        torch.cuda.synchronize()


def compiled() -> None:
    function = torch.compile(lambda x: functional.gelu(x * 2 + 1).sum())
    function(torch.randn(1 << 20, device="cuda", requires_grad=True)).backward()


def graph() -> None:
    x, found = torch.randn(1024, 1024, device="cuda"), torch.cuda.CUDAGraph()
    torch.mm(x, x)
    torch.cuda.synchronize()
    with torch.cuda.graph(found):
        torch.mm(x, x)
    found.replay()


STAGES: dict[str, Callable[[], object]] = {
    "context": torch.cuda.init,
    "a first kernel": lambda: torch.ones(8, device="cuda") + 1,
    "cuBLAS, fp32": lambda: matrix(torch.float32),
    "cuBLAS, bf16": lambda: matrix(torch.bfloat16),
    "layers, loss, AdamW": layers,
    "attention": attention,
    "cuDNN's convolutions": convolution,
    "sort, topk": sorting,
    "cuSOLVER": lambda: torch.linalg.eigh(torch.eye(64, device="cuda")),
    "cuFFT": lambda: torch.fft.fft(torch.randn(1 << 16, device="cuda")),
    "torch.compile": compiled,
    "CUDA graph": graph,
    "NCCL, one rank": communicator,
}


def outside() -> float:
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return (total - free - torch.cuda.memory_reserved()) / 2**20


def main() -> None:
    options = figures.parser().parse_args()
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    found: dict[str, float | str] = {}
    for name, use in STAGES.items():
        try:
            use()
            found[name] = outside()
        except Exception as error:  # a library that is not there has no memory either
            found[name] = str(error).splitlines()[0][:200]
    figures.write(options.output, {"stages": found})


if __name__ == "__main__":
    main()
