"""Checks a snapshot as PyTorch's tools read it: check_snapshot.py FILE PEAK_RESERVED PEAK_ALLOCATED.

Replays its events and finds the same peaks; no two live blocks overlap; every block lies in a segment; and only
opcodes are used that memory_viz's own reader knows. Where PyTorch is installed, its tools must take the file too.
"""

import bisect
import pickle
import pickletools
import sys

KNOWN = {
    "PROTO", "STOP", "MARK", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "APPENDS", "APPEND", "SETITEMS", "SETITEM", "BININT", "BININT1",
    "BININT2", "LONG1", "BINUNICODE", "SHORT_BINUNICODE", "LONG_BINPUT", "BINPUT", "LONG_BINGET", "BINGET", "TUPLE2", "NEWTRUE",
    "NEWFALSE", "NONE",
}


def hold(held, start, end):
    """Adds a range to disjoint ones, joined with those it touches."""
    touching = [one for one in held if one[0] <= end and start <= one[1]]
    assert all(one[1] == start or one[0] == end for one in touching), "held twice"
    for one in touching:
        held.remove(one)
        start, end = min(start, one[0]), max(end, one[1])
    held.append((start, end))


def give_back(held, start, end):
    """Takes a range out of one that holds it."""
    around = next(one for one in held if one[0] <= start and end <= one[1])
    held.remove(around)
    held.extend(part for part in ((around[0], start), (end, around[1])) if part[0] < part[1])


def main():
    path, peak_reserved, peak_allocated = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    raw = open(path, "rb").read()
    used = {opcode.name for opcode, _, _ in pickletools.genops(raw)}
    assert used <= KNOWN, used - KNOWN
    data = pickle.loads(raw)
    reserved = allocated = most_reserved = most_allocated = 0
    live, held = [], []
    for entry in data["device_traces"][0]:
        action, addr = entry["action"], entry["addr"]
        size = max(512, (entry["size"] + 511) // 512 * 512)
        if action in ("segment_alloc", "segment_map"):
            reserved += entry["size"]
            hold(held, addr, addr + entry["size"])
        elif action in ("segment_free", "segment_unmap"):
            reserved -= entry["size"]
            give_back(held, addr, addr + entry["size"])
        elif action == "alloc":
            at = bisect.bisect(live, (addr, 0))
            assert at == len(live) or addr + size <= live[at][0], "overlap with the block above"
            assert at == 0 or live[at - 1][0] + live[at - 1][1] <= addr, "overlap with the block below"
            live.insert(at, (addr, size))
            # MemoryViz.js looks up the segment of each block at each moment, and breaks where there is none.
            assert any(start <= addr and addr + size <= end for start, end in held), "a block outside of every segment"
            allocated += size
        elif action == "free_completed":
            live.remove((addr, size))
            allocated -= size
        most_reserved, most_allocated = max(most_reserved, reserved), max(most_allocated, allocated)
    assert most_reserved == peak_reserved, (most_reserved, peak_reserved)
    assert most_allocated == peak_allocated, (most_allocated, peak_allocated)
    assert sum(segment["total_size"] for segment in data["segments"]) == reserved
    ends = []
    for segment in data["segments"]:
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at, "blocks leave a gap"
            at += block["size"]
            if block["state"] == "active_allocated":
                ends.append((block["address"], block["size"]))
        assert at == segment["address"] + segment["total_size"], "blocks do not fill the segment"
    assert sorted(ends) == live, "what lives at the end is not what the events leave"
    try:
        from torch.cuda import _memory_viz
    except ImportError:
        print("PyTorch is not installed: its own tools were not tried")
        return
    _memory_viz.segsum(data)
    _memory_viz.trace(data)
    assert "snapshot" in _memory_viz.trace_plot(data, device=0)


if __name__ == "__main__":
    main()
