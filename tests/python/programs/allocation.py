"""Small programs of allocation, the same with every allocator; prints what PyTorch says after each, one JSON object a line.

``allocation.py [NAME...]``: all of them without names. Addresses are told as the number of the allocation that got them.
"""

import gc
import json
import sys
import threading

import torch

MIB, GIB = 1 << 20, 1 << 30
DEVICE_BYTES = torch.cuda.mem_get_info()[1]
SIDE = torch.cuda.Stream()
PROGRAMS = {}
kept = []


def program(work):
    PROGRAMS[work.__name__] = work
    return work


def block(size):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def remember(**options):
    torch.cuda.memory._record_memory_history(**{"max_entries": 1000, "context": None, "clear_history": True, **options})


def set_settings(text):
    torch.cuda.memory._set_allocator_settings(text)


def limit(bytes):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.set_per_process_memory_fraction(bytes / DEVICE_BYTES)


def refused(size):
    try:
        kept.append(block(size))
    except torch.OutOfMemoryError as error:
        return str(error).split(". ")[0]
    raise AssertionError(f"{size} bytes were served")


@program
def small_blocks():
    kept.extend(block(size) for size in [1, 511, 512, 513, 4096, 100_000, MIB])
    del kept[1:4]


@program
def large_blocks():
    kept.extend(block(size * MIB) for size in [2, 4, 12, 30, 64])
    del kept[1], kept[2]


@program
def of_both_kinds():
    kept.extend(block(size) for size in [512, 4 * MIB, 700, 6 * MIB, MIB])
    torch.cuda.reset_peak_memory_stats()
    kept.pop(0)
    torch.cuda.reset_accumulated_memory_stats()
    kept.append(block(2000))


@program
def freed_and_cached():
    kept.extend(block(20 * MIB) for _ in range(4))
    kept.clear()


@program
def emptied_cache():
    kept.append(block(64 * MIB))
    kept.extend(block(2000) for _ in range(3))
    del kept[0]
    torch.cuda.empty_cache()


@program
def streams():
    with torch.cuda.stream(SIDE):
        kept.extend([block(4 * MIB), block(700)])
    kept[0].record_stream(torch.cuda.current_stream())
    del kept[0]
    torch.cuda.synchronize()
    kept.append(block(512))


@program
def threads():
    def work():
        own = [block(4 * MIB) for _ in range(5)]
        kept.append(own[2])

    for _ in range(3):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()


@program
def pool_in_use():
    own = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(own):
        kept.extend([block(4 * MIB), block(700)])
    kept.append(own)


@program
def pool_gone():
    pool_in_use()
    kept.clear()
    gc.collect()
    torch.cuda.empty_cache()


@program
def graph_in_use():
    graph, given = torch.cuda.CUDAGraph(), torch.zeros(MIB, device="cuda")
    with torch.cuda.graph(graph):
        result = (given + 1) * 2
    graph.replay()
    kept.extend([graph, given, result])


@program
def graph_gone():
    graph_in_use()
    kept.clear()
    gc.collect()
    torch.cuda.empty_cache()


@program
def graphs_that_share():
    first, second, given = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph(), torch.zeros(MIB, device="cuda")
    with torch.cuda.graph(first):
        half = given + 1
    with torch.cuda.graph(second, pool=first.pool()):
        result = half * 2
    kept.extend([first, second, given, half, result])


@program
def limit_reached():
    limit(1000 * MIB)
    kept.append(block(400 * MIB))
    text = [refused(700 * MIB), refused(2 * GIB)]
    kept.append(block(500 * MIB))
    return text


@program
def limit_reached_while_cached():
    limit(1000 * MIB)
    kept.extend(block(200 * MIB) for _ in range(4))
    kept.clear()
    kept.append(block(800 * MIB))
    return refused(300 * MIB)


@program
def refused_by_the_device():
    kept.append(block(4 * MIB))
    text = [refused(2 * DEVICE_BYTES), refused(1 << 61)]
    kept.append(block(GIB))
    return text


@program
def refused_and_told():
    told = []
    torch._C._cuda_attach_out_of_memory_observer(lambda device, size, total, free: told.append([device, size]))
    refused(2 * DEVICE_BYTES)
    seen, told = told, []
    return seen


@program
def full_and_freed():
    while True:
        try:
            kept.append(block(8 * GIB))
        except torch.OutOfMemoryError:
            break
    del kept[1:]
    kept.append(block(20 * GIB))


@program
def history_with_stacks():
    remember(context="all", stacks="python")
    kept.extend([block(4 * MIB), block(700)])
    del kept[0]
    kept.append(block(2 * MIB))


@program
def history_of_few_entries():
    remember(max_entries=5)
    for size in range(1, 9):
        kept.append(block(size * 512))
        kept[:-2] = []


@program
def history_without_some():
    remember(skip_actions=["free_completed", "segment_map", "segment_unmap", "segment_alloc", "segment_free"])
    kept.extend([block(4 * MIB), block(700)])
    del kept[0]


@program
def history_of_states():
    remember(enabled="state", context="state", stacks="python")
    kept.extend([block(4 * MIB), block(700)])
    del kept[0]


@program
def snapshots_taken():
    for size in [4 * MIB, 700]:
        kept.append(block(size))
        torch.cuda.memory._snapshot()
    del kept[0]


@program
def history_cleared():
    kept.append(block(700))
    remember(clear_history=True)
    kept.append(block(512))
    del kept[0]


@program
def no_history():
    torch.cuda.memory._record_memory_history(enabled=None)
    kept.extend(block(size) for size in [512, 4 * MIB, 700])
    del kept[0]


@program
def notes():
    torch.cuda.memory._set_memory_metadata("of mine")
    kept.append(block(4 * MIB))
    torch.cuda.memory._set_memory_metadata("")
    kept.append(block(700))
    return torch.cuda.memory._get_memory_metadata()


@program
def profiled():
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        kept.append(torch.ones(MIB, device="cuda"))
        kept.append(kept[0] + kept[0])
        del kept[0]
    return sorted((event.key, event.self_device_memory_usage) for event in profile.key_averages() if event.self_device_memory_usage)


@program
def no_caching():
    torch.cuda.caching_allocator_enable(False)
    kept.append(block(4 * MIB))
    torch.cuda.caching_allocator_enable(True)
    kept.append(block(700))


@program
def raw_blocks():
    address = torch.cuda.caching_allocator_alloc(3000)
    kept.append(block(700))
    torch.cuda.caching_allocator_delete(address)


@program
def set_to_split_less():
    set_settings("max_split_size_mb:32")
    kept.extend(block(size * MIB) for size in [64, 16])
    del kept[0]
    kept.append(block(40 * MIB))
    set_settings("")


@program
def set_to_collect():
    set_settings("garbage_collection_threshold:0.5")
    limit(1000 * MIB)
    for size in [100, 200, 300, 100]:
        kept.append(block(size * MIB))
        kept.clear()
    set_settings("")


@program
def set_to_expand_no_more():
    set_settings("expandable_segments:False")
    kept.extend([block(4 * MIB), block(700)])
    set_settings("expandable_segments:True")
    kept.append(block(6 * MIB))


@program
def set_to_round_up():
    set_settings("roundup_power2_divisions:4")
    kept.append(block(5 * MIB + 1))
    set_settings("roundup_power2_divisions:1")


def look(said):
    """What PyTorch says now; numbers and words alone."""
    stats = torch.cuda.memory_stats()
    snapshot = torch.cuda.memory._snapshot()
    pools, streams, numbers, history, count = {(0, 0): 0}, {0: 0}, {}, [], 0
    for entry in snapshot["device_traces"][0]:
        action, address = entry["action"], entry.get("addr")
        if action == "alloc":
            numbers[address], count = count, count + 1
        history.append(
            {
                "action": action,
                "size": entry["size"],
                "block": numbers.get(address) if action in ("alloc", "free_requested", "free_completed") else None,
                "stream": streams.setdefault(entry["stream"], len(streams)),
                "pool": pools.setdefault(tuple(entry.get("segment_pool_id", (0, 0))), len(pools)),
                "frames": [f"{frame['filename'].rpartition('/')[2]}:{frame['line']}" for frame in entry.get("frames", []) if "allocation.py" in frame["filename"]],
                "keys": sorted(entry),
                "said": [entry.get("compile_context"), entry.get("user_metadata")],
            }
        )
    segments = [
        {
            **{name: segment[name] for name in ["address", "total_size", "allocated_size", "active_size", "requested_size", "segment_type", "is_expandable"]},
            "stream": streams.setdefault(segment["stream"], len(streams)),
            "pool": pools.setdefault(tuple(segment["segment_pool_id"]), len(pools)),
            "keys": sorted(segment),
            "blocks": [
                {
                    **{name: one[name] for name in ["size", "requested_size", "state"]},
                    "keys": sorted(one),
                    "frames": len(one.get("frames", [])) > 0,
                }
                for one in segment["blocks"]
            ],
        }
        for segment in snapshot["segments"]
    ]
    return {
        "said": said,
        "stats": {str(name): value for name, value in stats.items()},
        "history": history,
        "segments": segments,
        "keys": sorted(snapshot),
        "settings": {name: str(value) for name, value in snapshot["allocator_settings"].items()},
        "summary": len(torch.cuda.memory_summary()) > 1000,
    }


torch.cuda.init()
block(512)
for name in sys.argv[1:] or PROGRAMS:
    remember()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()
    remember()
    said = PROGRAMS[name]()
    torch.cuda.synchronize()
    print(json.dumps({"name": name, **look(said)}))
    kept.clear()
    gc.collect()
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.memory._record_memory_history(enabled=None)
