"""Trains, gives the GPU away, has it back and trains on: whether values are those of a job that never slept, and what it took."""

from __future__ import annotations

import os
import sys
from typing import Any

import figures
import torch
from torch import nn
from train import SHAPES, TINY, Decoder

MIB = 1 << 20


def main() -> None:
    options = figures.parser().parse_args()
    stalloc = sys.modules.get("stalloc")
    shape = TINY if options.tiny else SHAPES["llama-1b"]
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.enable_cudnn_sdp(False)  # its backward pass adds in any order
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Decoder(shape, True, 0, None)  # type: ignore[arg-type]
    torch.set_default_dtype(torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    losses: list[str] = []

    def train(steps: int) -> None:
        for _ in range(steps):
            text = torch.randint(shape[2], (2, shape[3]), device="cuda")
            loss = model(text)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss.item()).hex())

    train(2)
    x, y = (torch.randn(512, 512, device="cuda") for _ in range(2))
    torch.mm(x, y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        z = x @ y
        y.copy_(z / z.norm())
    cache = torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda")
    found: dict[str, Any] = {"cycles": [], "backend": torch.cuda.get_allocator_backend()}
    for cycle in range(3):
        if stalloc:
            asleep = stalloc.sleep(discard=cache)
            other = torch.empty(int(0.9 * torch.cuda.mem_get_info()[0]), dtype=torch.uint8, device="cuda")
            other.fill_(255)
            del other
            torch.cuda.empty_cache()
            torch.cuda.synchronize()
            awake = stalloc.wake(first=model)
            found["cycles"].append({"asleep": asleep.to_dict(), "awake": awake.to_dict()})
        cache.zero_()
        graph.replay()
        losses.append(float(z.double().sum().item()).hex())
        train(2)
    weights = torch.stack([parameter.detach().double().sum() for parameter in model.parameters()])
    found.update(losses=losses, weights=float(weights.sum().item()).hex())
    figures.write(options.output, found)


if __name__ == "__main__":
    main()
