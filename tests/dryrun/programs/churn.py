"""Allocates and frees at random, on several streams, under one setting of PyTorch's allocator after the other.

Usage: churn.py DIRECTORY: writes NAME.pickle, a memory snapshot, for each of SETTINGS, and prints what each was limited to.
"""

import json
import pathlib
import random
import sys

import torch

MIB = 1 << 20
OFF = {"expandable_segments": "False", "roundup_power2_divisions": "1"}
# Name: (what differs from OFF, memory that the process may take, MiB).
SETTINGS = {
    "native": ({}, None),
    "max_split_size": ({"max_split_size_mb": "40"}, None),
    "max_split_size_tight": ({"max_split_size_mb": "24"}, 2500),
    "roundup": ({"roundup_power2_divisions": "4"}, None),
    "roundup_by_size": ({"roundup_power2_divisions": "[8:8,64:4,256:2,>:1]"}, None),
    "expandable": ({"expandable_segments": "True"}, None),
    "expandable_tight": ({"expandable_segments": "True"}, 2500),
    # Garbage collection cannot be switched off again.
    "garbage_collection": ({"garbage_collection_threshold": "0.5"}, 6000),
    "garbage_collection_max_split": ({"garbage_collection_threshold": "0.4", "max_split_size_mb": "64"}, 6000),
    "everything": ({"max_split_size_mb": "100", "roundup_power2_divisions": "2", "garbage_collection_threshold": "0.7"}, 5000),
}


def churn(seed, most):
    """Keeps up to `most` bytes in tensors of all sizes, made on three streams and used on others."""
    rng = random.Random(seed)
    streams = [torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    live, held = [], 0
    for step in range(1500):
        size = int(2 ** rng.uniform(6, 28 if step % 50 else 29))
        while live and (held + size > most or rng.random() < 0.35):
            tensor = live.pop(rng.randrange(len(live)))
            held -= tensor.numel()
            del tensor
        with torch.cuda.stream(rng.choice(streams)):
            try:
                tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError:
                live, held = live[len(live) // 2 :], sum(tensor.numel() for tensor in live[len(live) // 2 :])
                continue
        if rng.random() < 0.1:
            tensor.record_stream(rng.choice(streams))
        live.append(tensor)
        held += size
        if step % 700 == 699:
            torch.cuda.empty_cache()


def main():
    folder = pathlib.Path(sys.argv[1])
    total = torch.cuda.mem_get_info()[1]
    limits = {}
    for seed, (name, (settings, limit)) in enumerate(SETTINGS.items()):
        torch.cuda.memory._record_memory_history(None)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.memory._set_allocator_settings(",".join(f"{key}:{value}" for key, value in (OFF | settings).items()))
        torch.cuda.set_per_process_memory_fraction(1.0 if limit is None else limit * MIB / total)
        torch.cuda.memory._record_memory_history(stacks="python", context=None, max_entries=1_000_000)
        churn(seed, 2000 * MIB if limit is None else limit * MIB * 3 // 4)
        torch.cuda.memory._dump_snapshot(str(folder / f"{name}.pickle"))
        limits[name] = None if limit is None else int(limit * MIB / total * total)
    print(json.dumps(limits))


if __name__ == "__main__":
    main()
