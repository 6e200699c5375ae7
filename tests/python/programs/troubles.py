"""A program that gets into the trouble that its arguments name."""

import os
import random
import resource
import signal
import sys
import time
from pathlib import Path

import torch

what = sys.argv[1]


def allocate(count):
    """Random sizes, which no compression makes small."""
    sizes = random.Random(1)
    for _ in range(count):
        torch.empty(sizes.randrange(1, 1 << 20), dtype=torch.uint8, device="cuda")


if what == "size":  # one tensor, of so many bytes
    tensor = torch.empty(int(sys.argv[2]), dtype=torch.uint8, device="cuda")
elif what == "full":  # no file grows beyond so many bytes from here on; a full disk is not to be had everywhere
    allocate(500)
    if len(sys.argv) > 2:
        for _ in range(30_000):
            if any(file.stat().st_size > 2000 for file in Path(sys.argv[3]).glob("*.trace")):
                break  # what was allocated so far is written
            time.sleep(0.01)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
    allocate(20_000)
elif what == "signals":  # says which signals come, and ends at the last with a status of its own
    seen = []

    def heard(number, frame):
        seen.append(signal.Signals(number).name)
        print(seen[-1], flush=True)

    for number in (signal.SIGUSR1, signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, heard)
    allocate(10)
    print("ready", os.getpid(), flush=True)
    while "SIGTERM" not in seen:
        time.sleep(0.02)
    sys.exit(7)
elif what == "distrust":  # the tracker is said to be wrong
    from stalloc import _native

    _native.agrees = lambda device, entries: False
    allocate(100)
elif what == "read":
    value = torch.ones(1, device="cuda").item()
    import torch.distributed as dist

    if os.environ.get("WORLD_SIZE"):
        dist.init_process_group("nccl")
        print("rank", dist.get_rank(), "of", dist.get_world_size())
    print("read", value)
