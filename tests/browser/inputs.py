"""Makes the inputs of the browser tests: snapshots and logs that show what reports must cope with.

Usage: inputs.py DIRECTORY
"""

import json
import pickle
import random
import sys
from pathlib import Path

EVIL = '<img src=x onerror="window.pwned=1"></script><script>window.pwned=2</script>.py'
MIB = 1 << 20


class Recorder:
    """A small allocator that keeps free blocks by size, and writes down what it does as PyTorch does."""

    def __init__(self, device, with_frames=True):
        self.device, self.with_frames = device, with_frames
        self.entries, self.segments, self.free, self.live = [], [], {}, {}
        self.next, self.clock = 0x7F0000000000, 1_700_000_000_000_000

    def log(self, action, addr, size, frames):
        self.clock += 7
        self.entries.append(
            {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": self.clock, "frames": frames}
        )

    def alloc(self, size, *names):
        frames = [{"filename": file, "line": line, "name": name} for file, line, name in names] if self.with_frames else []
        rounded = (size + 511) // 512 * 512
        free = self.free.get(rounded, [])
        if free:
            addr = free.pop()
        else:
            addr, segment = self.next, max(2 * MIB, rounded)
            self.next += (segment + 2 * MIB - 1) // (2 * MIB) * 4 * MIB
            self.log("segment_alloc", addr, segment, frames)
            self.segments.append((addr, segment))
        self.log("alloc", addr, size, frames)
        self.live[addr] = (size, rounded, frames)
        return addr

    def release(self, addr):
        size, rounded, frames = self.live.pop(addr)
        self.log("free_requested", addr, size, frames)
        self.log("free_completed", addr, size, frames)
        self.free.setdefault(rounded, []).append(addr)

    def fail(self, size, device_free):
        self.log("oom", 0, size, [])
        self.entries[-1]["device_free"] = device_free

    def state(self):
        out = []
        for addr, total in self.segments:
            blocks, at = [], addr
            for block, (size, rounded, frames) in sorted(self.live.items()):
                if addr <= block < addr + total:
                    blocks.append(
                        {"address": block, "size": rounded, "requested_size": size, "state": "active_allocated", "frames": frames}
                    )
                    at = block + rounded
            if at < addr + total:
                rest = addr + total - at
                blocks.append({"address": at, "size": rest, "requested_size": 0, "state": "inactive", "frames": []})
            live = sum(block["size"] for block in blocks if block["state"] != "inactive")
            out.append(
                {
                    "device": self.device, "address": addr, "total_size": total, "allocated_size": live, "active_size": live,
                    "requested_size": live, "stream": 0, "segment_type": "large" if total > 2 * MIB else "small",
                    "segment_pool_id": (0, 0), "is_expandable": False, "frames": [], "blocks": blocks,
                }
            )
        return out


def train(recorder, layers, steps, width):
    """A training loop: weights, then forward, backward and an optimizer step, with sizes that fragment."""
    at = lambda name, line: ("model/" + name, line, "forward")
    weights = [recorder.alloc(width, at("layers.py", 10)) for _ in range(layers)]
    states = []
    for step in range(steps):
        kept = []
        for layer in range(layers):
            kept.append(recorder.alloc(width * (1 + layer % 3), at("attention.py", 42), (EVIL, 1, "<b>main</b>")))
            recorder.release(recorder.alloc(width * 2 + step * 0 + layer * 4096, at("mlp.py", 7)))
        grads = []
        for block in reversed(kept):
            grads.append(recorder.alloc(width, ("torch/autograd/graph.py", 3, "backward")))
            recorder.release(block)
        if not states:
            states = [recorder.alloc(2 * width, ("torch/optim/adamw.py", 5, "_init_group")) for _ in weights]
        for grad in grads:
            recorder.release(grad)


def snapshot(path, recorders, keep_trace=True, **known):
    data = {
        "segments": [segment for recorder in recorders for segment in recorder.state()],
        "device_traces": [recorder.entries if keep_trace else [] for recorder in recorders],
        "allocator_settings": {},
        "external_annotations": [],
        **known,
    }
    path.write_bytes(pickle.dumps(data, protocol=4))


def log(path, events, steps):
    """A text log without addresses that mean anything, call stacks or times, of about so many events."""
    rng = random.Random(7)
    sizes = [rng.randrange(1, 4000) * 8192 for _ in range(40)]
    per_step = events // steps
    lines, following = [], 0x10000
    for index in range(64):
        lines.append(f"1 {following:#x} {64 * MIB} 0x0")
        following += 1 << 30
    for step in range(steps):
        lines.append(f"Iteration Index : {step}")
        shape, live = random.Random(11), []
        for _ in range(per_step // 2):
            address, following = following, following + (1 << 20)
            lines.append(f"1 {address:#x} {sizes[shape.randrange(40)]} 0x0")
            live.append(address)
            if len(live) > shape.choice((4, 60, 600)):
                lines.append(f"0 {live.pop(shape.randrange(len(live))):#x} 0 0x0")
        lines.extend(f"0 {address:#x} 0 0x0" for address in reversed(live))
    lines.append("Iteration Index : end")
    path.write_text("\n".join(lines) + "\n")


def main():
    out = Path(sys.argv[1])
    one = Recorder(0)
    train(one, 24, 4, 6 * MIB)
    snapshot(out / "training.pickle", [one])
    wider = Recorder(0)
    train(wider, 30, 4, 6 * MIB)
    snapshot(out / "wider.pickle", [wider])
    snapshot(out / "state_only.pickle", [one], keep_trace=False)
    three = [Recorder(device) for device in range(3)]
    for index, recorder in enumerate(three):
        train(recorder, 6 + 4 * index, 3, 3 * MIB)
    for name in ["three_devices", "three_devices_of_a_training_that_has_a_long_name"]:
        snapshot(out / f"{name}.pickle", three)
    failing = [Recorder(device) for device in range(2)]
    for recorder in failing:
        train(recorder, 8, 3, 3 * MIB)
    failing[1].fail(20 * MIB, 5 * MIB)
    failing[1].fail(5000 * MIB, 5 * MIB)
    snapshot(out / "out_of_memory.pickle", failing)
    leaking = Recorder(0)
    seen = []
    for _ in range(60):
        batch = leaking.alloc(3 * MIB, ("/job/train.py", 22, "main"))
        seen.append(leaking.alloc(12 * MIB, ("/job/train.py", 14, "hook"), ("/job/train.py", 23, "main")))
        leaking.release(batch)
    leaking.fail(20 * MIB, 5 * MIB)
    held = {"kind": "hook", "name": "list `seen` in the closure of hook at train.py:13", "bytes": 60 * 12 * MIB, "tensors": 60, "addresses": seen}
    facts = {"device": 0, "total": 1024 * MIB, "free": 5 * MIB, "reserved": 900 * MIB, "holders": [held]}
    snapshot(out / "death.pickle", [leaking], stalloc=json.dumps(facts))
    bare = Recorder(0, with_frames=False)
    train(bare, 12, 3, 5 * MIB)
    for entry in bare.entries:
        del entry["time_us"]
    snapshot(out / "no_stacks_no_times.pickle", [bare])
    log(out / "mem_log_dev0.txt", 1_000_000, 10)


if __name__ == "__main__":
    main()
