"""A random program, the same with every allocator: it asks for memory in every way that there is, and prints what PyTorch says.

``differential.py SEED ACTS``: prints a JSON object per look at the figures. Between two acts nothing is left to chance: threads
are waited for, and where other streams may not be done with a block all are waited for and peaks begin again.
"""

import gc
import json
import random
import sys
import threading

import torch
from gpt_step import Trainer

seed, acts = int(sys.argv[1]), int(sys.argv[2])
draw = random.Random(seed)
MIB, GIB = 1 << 20, 1 << 30
LOOK_EVERY = 50 if acts < 10_000 else 2_000
MOST_BLOCKS = 300
device_bytes = torch.cuda.mem_get_info()[1]
streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
trainer = Trainer()
live = []
recorded = []  # on other streams
requests = 0


def size():
    """Few sizes, so that addresses are used again; large ones of which PyTorch's allocator leaves no rest in a block."""
    kind = draw.randrange(10)
    if kind < 6:
        return draw.choice([1, 512, 1000, 4096, 65_536, 100_000, MIB])
    if kind < 9:
        return 2 * MIB * draw.randrange(1, 9)
    return draw.randrange(1, MIB)


def allocate(stream=None, bytes=None):
    global requests
    requests += 1
    with torch.cuda.stream(stream or draw.choice(streams)):
        return torch.empty(bytes or size(), dtype=torch.uint8, device="cuda")


def settle():
    """No block waits for a stream any more, and peaks begin here."""
    torch.cuda.synchronize()
    for stream in streams:
        allocate(stream, 512)
    torch.cuda.reset_peak_memory_stats()


def keep(tensor):
    live.append(tensor)
    if len(live) > MOST_BLOCKS:
        del live[: MOST_BLOCKS // 2]


def refused(bytes):
    """The exception that a request leads to: its type and the first words of its text, and what others may read of it."""
    try:
        torch.empty(bytes, dtype=torch.uint8, device="cuda")
    except Exception as error:
        text = str(error)
        first = ". ".join(text.split(". ")[:2]).rstrip(".")
        return {"type": type(error).__name__, "text": first, "limited": " allowed" in text}
    return None


def until_full(bytes):
    """How many blocks there is room for, and what is held without use then."""
    hoard = []
    try:
        while len(hoard) < 10_000:
            hoard.append(torch.empty(bytes, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        pass
    return len(hoard), (torch.cuda.memory_reserved() - torch.cuda.memory_allocated()) / bytes


def forget(room):
    """Sums and peaks begin again: the room was for so many blocks, and may have been for another number."""
    out_of_memory = torch.cuda.memory_stats()["num_ooms"]
    settle()
    torch.cuda.reset_accumulated_memory_stats()
    return {"room": room[0], "idle": room[1], "out_of_memory": out_of_memory}


def look(what, **more):
    snapshot = torch.cuda.memory._snapshot()
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    held = [block for block in blocks if block["state"] == "active_allocated"]
    history = {}
    for entry in snapshot["device_traces"][0]:
        history[entry["action"]] = history.get(entry["action"], 0) + 1
    stats = torch.cuda.memory_stats()
    accelerator = torch.accelerator.memory_stats()
    print(
        json.dumps(
            {
                "what": what,
                "stats": {name: value for name, value in stats.items() if isinstance(value, (int, float))},
                "accelerator": all(stats.get(name) == value for name, value in accelerator.items()) and len(accelerator) > 50,
                "calls": {
                    name: [getattr(torch.cuda, name)(), getattr(torch.accelerator, name)()]
                    for name in ["memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"]
                },
                "fraction": torch.cuda.get_per_process_memory_fraction(),
                "live": sorted(((block["size"], block["requested_size"]) for block in held), key=lambda block: block[1]),
                "segments": sum(segment["total_size"] for segment in snapshot["segments"]),
                "filled": all(sum(b["size"] for b in s["blocks"]) == s["total_size"] for s in snapshot["segments"]),
                "history": history,
                **more,
            }
        )
    )


# ---- acts ---------------------------------------------------------------------------------------------------------------


def train():
    trainer.step(draw.choice([8, 8, 8, 5]))
    settle()


def other_stream():
    recorded.clear()
    tensor = allocate()
    tensor.record_stream(draw.choice(streams))
    if draw.random() < 0.5:
        recorded.append(tensor)
    del tensor
    settle()


def other_thread():
    def work():
        for _ in range(5):
            keep(allocate())
        del live[: len(live) // 2]

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def several_threads():
    global requests

    def work(own):
        kept = []
        for bytes in own:
            kept.append(torch.empty(bytes, dtype=torch.uint8, device="cuda"))
            if len(kept) > 5:
                del kept[0]

    plans = [[size() for _ in range(30)] for _ in range(3)]
    requests += 90
    threads = [threading.Thread(target=work, args=(own,)) for own in plans]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    settle()


def pool():
    try:
        own = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(own):
            kept = [allocate(streams[0]) for _ in range(5)]
    except RuntimeError:  # the way in that has none of these
        kept = [allocate(streams[0]) for _ in range(5)]
        own = None
    del kept, own
    gc.collect()
    settle()
    torch.cuda.empty_cache()


def graph():
    captured = torch.cuda.CUDAGraph()
    static = torch.zeros(draw.choice([1000, 100_000]), device="cuda")
    with torch.cuda.graph(captured):
        result = (static + 1) * 2
    captured.replay()
    del captured, result, static
    gc.collect()
    settle()
    torch.cuda.empty_cache()


def limit():
    share = draw.choice([8, 12]) * GIB / device_bytes
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.set_per_process_memory_fraction(share)
    error = refused(20 * GIB)
    room = until_full(64 * MIB)
    within = torch.cuda.max_memory_reserved() <= share * device_bytes
    look("limit", error=error, within=within, **forget(room))
    torch.cuda.set_per_process_memory_fraction(1.0)


def full():
    room, error, huge = until_full(GIB), refused(2 * device_bytes), refused(1 << 61)
    look("full", error=error, huge=huge, **forget(room))


def no_caching():
    before = torch.cuda.memory_allocated()
    torch.cuda.caching_allocator_enable(False)
    kept = [torch.empty(bytes, dtype=torch.uint8, device="cuda") for bytes in (512, 3 * MIB)]
    seen = torch.cuda.memory_allocated()
    del kept
    torch.cuda.caching_allocator_enable(True)
    look("no caching", uncounted=seen == before)


def history():
    torch.cuda.memory._record_memory_history(max_entries=1_000_000, context=None, clear_history=True)
    for _ in range(50):
        keep(allocate())
        if live and draw.random() < 0.5:
            live.pop(draw.randrange(len(live)))
    settle()
    look("history")
    torch.cuda.memory._record_memory_history(enabled=None)


def release():
    del live[: draw.randrange(len(live) + 1)]
    torch.cuda.empty_cache()


SELDOM = [train, other_stream, other_thread, several_threads, pool, graph, limit, full, no_caching, history, release]
SELDOM += [train, other_stream, other_thread, release, torch.cuda.reset_peak_memory_stats, torch.cuda.reset_accumulated_memory_stats]

for _ in range(3):
    train()
look("begin")
for act in range(acts):
    chance = draw.random()
    if chance < 0.5:
        keep(allocate())
    elif chance < (0.97 if acts < 10_000 else 0.999):
        if live:
            live.pop(draw.randrange(len(live)))
    else:
        draw.choice(SELDOM)()
    if act % LOOK_EVERY == LOOK_EVERY - 1:
        look("act")
live.clear()
recorded.clear()
gc.collect()
settle()
torch.cuda.empty_cache()
look("end", requests=requests)
