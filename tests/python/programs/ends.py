"""Trains until what was learned is kept in a folder, and ends then in a way of its own: ``ends.py FOLDER WAY``."""

import os
import signal
import sys
import time
from pathlib import Path

import torch

import stalloc

folder, way = Path(sys.argv[1]), sys.argv[2]
if way == "handled":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
# A rank that begins when another has kept what it learned is served by that, and keeps nothing of its own.
ranks = int(os.environ.get("WORLD_SIZE", 1))
Path(f"{folder}.begins{os.environ.get('RANK', 0)}").touch()
while len(list(folder.parent.glob(f"{folder.name}.begins*"))) < ranks:
    time.sleep(0.01)
torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
layers = [torch.randn(300, 300, device="cuda", requires_grad=True) for _ in range(6)]


def step():
    with stalloc.step():
        x = torch.randn(64, 300, device="cuda")
        for layer in layers:
            x = torch.relu(x @ layer)
        x.sum().backward()
        for layer in layers:
            layer.grad = None


def train():
    """Until every rank's plan is there, however busy the machine is."""
    for _ in range(30_000):
        if len(list(folder.glob("*.plan"))) == ranks:
            break
        step()
        time.sleep(0.01)


if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
    for _ in range(6):
        step()
    sys.exit()
train()
if way == "left":
    os._exit(0)
if way == "restarted" and os.environ["RANK"] == "0":
    time.sleep(300)  # until the launcher ends it, since the other rank was killed
os.kill(os.getpid(), signal.SIGKILL if way in ("killed", "restarted") else signal.SIGTERM)
time.sleep(300)
