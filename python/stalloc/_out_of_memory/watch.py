"""Waits for memory to run out: captures what lives then, and writes it down only if the program does not go on.

What is captured is the program's state before the stack unwinds. Whether the exception is handled is known later: when the
interpreter's hooks for uncaught exceptions are called, or when the program ends with nothing allocated since.
"""

from __future__ import annotations

import _thread
import atexit
import gc
import linecache
import os
import sys
import threading
import time
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator

from stalloc._common import snapshots
from stalloc._common.output import say
from stalloc._common.users import is_users
from stalloc._out_of_memory import facts, holders
from stalloc._out_of_memory.claims import MOST_HOLDERS, Claims
from stalloc._out_of_memory.kinds import Kind
from stalloc._out_of_memory.limits import Deadline
from stalloc._out_of_memory.live import Live
from stalloc._out_of_memory.objects import CONTAINERS, cause_of, context_of, ended_frames, is_a, locals_of, name_of, said_by
from stalloc._out_of_memory.publish import publish
from stalloc._out_of_memory.stacks import Stacks
from stalloc._out_of_memory.world import World, content_of, line_of, tensors_in, used_by

#: Time for all captures together (and for naming variables): seconds, and share of what the program has taken.
LEAST_SECONDS, SHARE = 1.0, 0.1
#: Allocations since the last failure with which a program that ends has not gone on.
FEW = 8
#: Holders for which a variable that has ended is the better name.
UNNAMED = (Kind.LOCAL, Kind.MODELS)
#: Tensors that frames of libraries hold in their variables at most.
FEW_LOCALS = 32
#: Frames of a call stack that are kept.
MOST_FRAMES = 64


@dataclass
class Capture:
    """What lived when a request failed."""

    device: int
    snapshot: dict[str, Any]
    facts: dict[str, Any]
    #: Allocations of the process until then.
    made: int
    claims: Claims
    #: The frame that asked, by its id: an exception that came from there leads through it.
    frame: int


class Watch:
    """One process's watch."""

    def __init__(self, torch: Any, folder: Path, quiet: bool = False, with_stacks: bool = True) -> None:
        self._torch = torch
        self._folder = folder
        self._quiet = quiet
        self._process = os.getpid()
        self._began = time.monotonic()
        self._spent = 0.0
        self._times = 0
        #: The first failure and the last: an exception that is kept may be any one's.
        self._captures: list[Capture] = []
        self._is_capturing = threading.Lock()
        #: Whether a thread has ended by memory that another one's request is told of.
        self._is_owed = False
        self._published = 0
        self._told = 0
        self._stacks = Stacks(torch) if with_stacks else None
        self._largest: tuple[int, str] = (0, "")
        #: Whether the user wanted an end while we looked: the program is told then.
        self._is_interrupted = False
        self._live = Live(torch)
        self._stopped = threading.Event()

    def install(self) -> None:
        """PyTorch has been imported."""
        self._torch.cuda._lazy_call(self._start)
        hook = sys.excepthook

        def uncaught(kind: Any, error: Any, trace: Any) -> None:
            hook(kind, error, trace)
            self._ended(error)  # last, where it is read

        sys.excepthook = uncaught
        in_thread = threading.excepthook

        def uncaught_in_thread(arguments: Any) -> None:
            error = arguments.exc_value
            in_thread(arguments)
            with self._is_capturing:  # perhaps by another thread, whose exception has the variables then
                found = _memory_error(self._torch, error)
                is_others = found is not None and bool(self._captures) and not self._through(found)
            self._is_owed |= is_others
            if not is_others:
                self._ended(error)

        threading.excepthook = uncaught_in_thread
        atexit.register(self._at_exit)
        os.register_at_fork(after_in_child=self._in_child)
        self._in_a_notebook()

    def _in_child(self) -> None:
        """A forked child is a program of its own, if CUDA was not in use yet: another's cannot be used."""
        if not self._torch.cuda.is_initialized():
            self._process = os.getpid()
            self._is_capturing = threading.Lock()

    def _start(self) -> None:
        try:
            observe = getattr(self._torch._C, "_cuda_attach_out_of_memory_observer", None)
            if observe is not None:
                observe(self._failed)
            if self._stacks is not None:
                self._stacks.start()
            self._live.begin()
            threading.Thread(target=self._each_second, name="stalloc-watch", daemon=True).start()
            # A process of `multiprocessing` ends without the interpreter's own end.
            if "multiprocessing.util" in sys.modules and sys.modules["multiprocessing"].parent_process() is not None:
                sys.modules["multiprocessing.util"].Finalize(None, self._at_exit, exitpriority=100)
        except Exception as error:
            say(f"no report if memory runs out: {error!r}")

    def _each_second(self) -> None:
        while not self._stopped.wait(1.0):
            try:
                if self._is_interrupted:
                    self._is_interrupted = False
                    _thread.interrupt_main()
                self._live.tick()
                if self._stacks is not None:
                    self._stacks.tick()
            except Exception:
                return

    def _in_a_notebook(self) -> None:
        ipython = sys.modules.get("IPython")
        shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
        if shell is not None:
            shell.events.register("post_run_cell", lambda result: self._ended(result.error_in_exec, again=True))

    def _failed(self, device: int, size: int, total: int, free: int) -> None:
        """PyTorch is about to raise: nothing has unwound yet."""
        if os.getpid() != self._process:
            return
        self._times += 1
        try:
            frames = _frames()
            self._largest = max(self._largest, (size, _user_line(frames)))
            # What PyTorch says is the program's own limit, where it has set one.
            total = int(self._torch.cuda.get_device_properties(device).total_memory)
            self._take(device, size, total, free, frames)
        except BaseException as error:  # the program is to get its own error, whatever ours is
            self._is_interrupted |= type(error) is KeyboardInterrupt
            del self._captures[1:]

    def _take(self, device: int, size: int, total: int, free: int, frames: list[types.FrameType]) -> None:
        began = time.thread_time()
        del self._captures[1:]
        if self._spent > self._budget() or not self._is_capturing.acquire(blocking=False):
            return
        collects = gc.isenabled()
        gc.disable()
        try:
            self._captures.append(self._captured(device, size, total, free, frames))
        finally:
            if collects:
                gc.enable()
            self._spent += time.thread_time() - began
            self._is_capturing.release()

    def _budget(self) -> float:
        """Seconds of the processor's time that captures may take."""
        return max(LEAST_SECONDS, SHARE * (time.monotonic() - self._began))

    def _captured(self, device: int, size: int, total: int, free: int, frames: list[types.FrameType]) -> Capture:
        snapshot = snapshots.take(self._torch)
        segments = [segment for segment in snapshot["segments"] if segment["device"] == device]
        live = [block for segment in segments for block in segment["blocks"] if block["state"] == "active_allocated"]
        _share_stacks(snapshot)
        sizes = {int(block["address"]): _size(block) for block in live}
        world = World(self._torch, device, Deadline(self._budget()))
        with world.is_tensor.undisturbed():
            claims = holders.find(world.look(), sizes, frames)
            known = facts.gather(world, claims, size, total, free)
        self._is_interrupted |= world.apart.is_interrupted
        known["left_out"] = world.apart.left_out
        known["device"] = device
        known["holders"] = claims.listed()
        known["times"] = self._times
        known["series"] = self._live.series.get(device, [])
        known["line"] = _user_line(frames)
        free = min(free, max(0, known["allowed"] - known["reserved"]))
        _note_failure(snapshot, device, size, free, [(frame, frame.f_lineno) for frame in frames])
        return Capture(device, snapshot, known, self._made(), claims, id(frames[0]) if frames else 0)

    def _made(self) -> int:
        stats = self._torch._C._cuda_memoryStats
        return sum(int(stats(one)["allocation"]["all"]["allocated"]) for one in range(self._torch.cuda.device_count()))

    def _ended(self, error: BaseException | None, again: bool = False) -> None:
        """An exception leaves the program, or a thread of it. What fails after the first report failed because of the same: ``again``
        is for what starts anew."""
        try:
            found = _memory_error(self._torch, error)
            if found is not None and os.getpid() == self._process and (self._published == 0 or again and self._told < self._times):
                self._publish(found)
        except BaseException as problem:
            self._told = self._times  # the program has not gone on
            say(f"no report of the memory that ran out: {name_of(type(problem))} {said_by(problem)}")

    def _publish(self, error: BaseException | None) -> None:
        capture = self._capture_of(error) or self._capture_late(error) or next(iter(self._captures), None)
        if capture is None:
            return
        self._captures.clear()
        self._published += 1
        self._told = self._times
        capture.facts["followed"] = max(0, self._times - capture.facts["times"])
        if error is not None:
            world = World(self._torch, capture.device, Deadline(LEAST_SECONDS))
            with world.apart, world.is_tensor.undisturbed():
                _name_locals(world, capture, error)
            capture.facts["left_out"] += world.apart.left_out
        if self._stacks is not None:
            self._stacks.stop()
        publish(self._folder, capture.snapshot, capture.facts)

    def _capture_of(self, error: BaseException | None) -> Capture | None:
        """What was captured where an exception comes from; of the last request that failed where none fits."""
        last = [one for one in self._captures if one.facts["times"] == self._times]
        return next(reversed(self._through(error) or last), None)

    def _through(self, error: BaseException | None) -> list[Capture]:
        """What was captured in the frames that an exception comes through."""
        through = {id(frame) for frame, _ in ended_frames(error)}
        return [one for one in self._captures if one.frame in through]

    def _capture_late(self, error: BaseException | None) -> Capture | None:
        """Nothing was captured: a library failed, or there was no time. The frames of the exception hold what they held."""
        if error is None or not self._torch.cuda.is_initialized():
            return None
        frames = ended_frames(error)[::-1]
        device = int(self._torch.cuda.current_device())
        free, total = self._torch.cuda.mem_get_info(device)
        capture = self._captured(device, 0, int(total), int(free), [frame for frame, _ in frames])
        _note_failure(capture.snapshot, device, 0, int(free), frames)
        own = [(frame, line) for frame, line in frames if is_users(frame.f_code.co_filename)]
        if own:
            frame, line = own[0]
            capture.facts["line"] = f"{line_of(frame.f_code, line)} {frame.f_code.co_name}"
        capture.facts["pinning"] = any("pin_memory" in frame.f_code.co_name or "pin_memory" in linecache.getline(frame.f_code.co_filename, line) for frame, line in frames)
        return capture

    def _at_exit(self) -> None:
        try:
            if os.getpid() != self._process or self._times == self._told:
                pass
            elif self._published > 0:
                say(f"{self._times - self._told} more requests failed after the report")
            elif self._captures and (self._is_owed or self._made() - self._captures[-1].made <= FEW):
                self._publish(None)
            elif not self._quiet:
                size, line = self._largest
                often = "once" if self._times == 1 else f"{self._times} times"
                say(f"memory ran out {often} and the program went on (largest request {size / (1 << 20):.0f} MiB at {line})")
        except BaseException as problem:
            say(f"no report of the memory that ran out: {name_of(type(problem))} {said_by(problem)}")
        self._stop()

    def _stop(self) -> None:
        self._times = 0
        if os.getpid() == self._process and not self._stopped.is_set():
            self._stopped.set()
            self._live.end()
        if self._stacks is not None:
            self._stacks.stop()


def _size(block: dict[str, Any]) -> int:
    """Bytes that were asked for, in units of 512; a block may have more, which no other request can use."""
    return -(-int(block.get("requested_size") or block["size"]) // 512) * 512


def _share_stacks(snapshot: dict[str, Any]) -> None:
    """Equal stacks become one list: the file is a tenth of the size."""
    known: dict[tuple[int, ...], Any] = {}
    blocks = (block for segment in snapshot["segments"] for block in segment["blocks"])
    entries = (entry for trace in snapshot.get("device_traces", ()) for entry in trace)
    for holder in (*blocks, *entries):
        frames = holder.get("frames")
        if frames:
            holder["frames"] = known.setdefault(tuple(map(id, frames)), frames)


def _frames() -> list[types.FrameType]:
    """The frames of the thread that asked, innermost first; of a thread of autograd's, those of the main thread."""
    frames = [frame for frame in _chain(sys._getframe(1)) if frame.f_code.co_filename != __file__]
    # A thread that Python did not start runs library code at most, on behalf of the main thread.
    if threading.get_ident() not in getattr(threading, "_active", {}) and not any(is_users(frame.f_code.co_filename) for frame in frames):
        frames += _chain(sys._current_frames().get(threading.main_thread().ident or 0))
    return frames


def _chain(frame: types.FrameType | None) -> list[types.FrameType]:
    frames: list[types.FrameType] = []
    while frame is not None and len(frames) < 512:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _user_line(frames: list[types.FrameType]) -> str:
    own = next((frame for frame in frames if is_users(frame.f_code.co_filename)), None) or (frames[0] if frames else None)
    return f"{line_of(own.f_code, own.f_lineno)} {own.f_code.co_name}" if own is not None else "unknown"


def _note_failure(snapshot: dict[str, Any], device: int, size: int, free: int, frames: list[tuple[types.FrameType, int]]) -> None:
    """Have the failed request in the recording, with its stack, whether or not the history was on."""
    traces = snapshot.setdefault("device_traces", [])
    while len(traces) <= device:
        traces.append([])
    entries = traces[device]
    stack = [dict(zip(("filename", "name", "line"), one)) for one in snapshots.failed_stack(frames[:MOST_FRAMES])]
    # Where a request of PyTorch's failed, its own entry of it, if the history is on: other threads may have gone on since.
    last = next((at for at in range(len(entries) - 1, -1, -1) if entries[at].get("action") == "oom"), None) if size else None
    if last is not None:
        entries.append(entries.pop(last) | {"frames": stack, "device_free": free})
    else:
        entries.append({"action": "oom", "size": size, "device_free": free, "addr": free, "stream": 0, "frames": stack,
                        "time_us": entries[-1].get("time_us", 0) if entries else 0})


def _memory_error(torch: Any, error: BaseException | None) -> BaseException | None:
    """The error of memory that ran out, in the chain of an exception."""
    for _ in range(16):
        if error is None:
            return None
        if is_a(error, torch.cuda.OutOfMemoryError):
            break
        said = said_by(error)[:4000]
        if is_a(error, RuntimeError) and "CU" in said and ("out of memory" in said.lower() or "ALLOC_FAILED" in said):
            break
        cause = cause_of(error)
        error = context_of(error) if cause is None else cause
    return error


def _name_locals(world: World, capture: Capture, error: BaseException) -> None:
    """Name what the frames of the exception hold by their variables: they have ended, so looking at them changes nothing."""
    holding = capture.facts["holders"]
    sizes = {int(b["address"]): _size(b) for s in capture.snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated"}
    is_tensor = world.is_tensor
    variables = list(_variables(world, error))
    for graph in (one for one in holding if one["ends"] and not one["line"]):
        # The variable that has most of the ends: of one end the tensor itself.
        name, line, value, used = max(variables, key=lambda one: (len(one[3].keys() & graph["ends"]), is_tensor(one[2])), default=(0, 0, 0, {}))
        if used.keys() & graph["ends"]:
            kind = graph["kind"] if is_tensor(value) else Kind.GRAPH_OF_MANY
            graph.update(name=f"autograd graph{'' if is_tensor(value) else 's'} of {name}", line=line, kind=kind)
    merged: dict[tuple[Kind, str], dict[str, Any]] = {}
    for one in holding:
        into = merged.setdefault((one["kind"], one["name"]), one)
        if into is not one:
            into.update((what, into[what] + one[what]) for what in ("bytes", "tensors", "used", "addresses"))
            into["is_of_input"] |= one["is_of_input"]
    holding = list(merged.values())
    found: list[dict[str, Any]] = []
    claims = capture.claims
    named = {address for address, holder in claims.of.items() if holder.kind not in UNNAMED and not holder.is_each}
    # A variable that has most of the objects of one kind names them.
    for one, addresses in ((one, set(one.addresses)) for one in claims.holders.values() if one.is_each):
        if any(2 * len(addresses & used.keys()) >= len(addresses) and is_a(value, *CONTAINERS) for _, _, value, used in variables):
            holding = [other for other in holding if other["name"] != one.name]
        else:
            named |= addresses
    for name, line, value, used in variables:
        new = [address for address in used if address in sizes and address not in named]
        if new and not is_a(value, world.torch.nn.Module):
            named.update(new)
            size = sum(sizes[address] for address in new)
            found.append({"kind": Kind.LOCAL if is_tensor(value) else Kind.CONTAINER, "name": name, "line": line, "bytes": size,
                          "tensors": len(new), "used": sum(min(used[one], sizes[one]) for one in new), "addresses": new, "content": content_of(value, is_tensor), "is_mapping": is_a(value, dict)})
    now = {address for one in found for address in one["addresses"]}
    rest = [one for one in holding if one["kind"] not in UNNAMED or not now.intersection(one["addresses"])]
    for one in rest:
        # The program's own frames have been looked at, and those of libraries have few: what is left has no name in Python.
        if one["kind"] is Kind.LOCAL and one["name"].endswith(holders.NAMELESS):
            one.update(kind=Kind.CONTAINER)
        elif one["kind"] is Kind.LOCAL and one["tensors"] > FEW_LOCALS:
            one.update(kind=Kind.UNNAMED, name="no name: autograd or C++ keeps it")
    capture.facts["holders"] = sorted([*rest, *found], key=lambda one: -one["bytes"])[: MOST_HOLDERS]


def _variables(world: World, error: BaseException) -> Iterator[tuple[str, str, Any, dict[int, int]]]:
    """The variables of the frames of an exception: name, line, value, and where its tensors lie. A tensor before what it is in, a
    container before an object that has it."""
    for frame, line in ended_frames(error):
        if not frame.f_code.co_flags & 1 or not is_users(frame.f_code.co_filename):
            continue
        place = line_of(frame.f_code, line)
        for variable, value in sorted(locals_of(frame).items(), key=lambda one: not is_a(one[1], world.torch.Tensor, *CONTAINERS)):
            used: dict[int, int] = {}
            with world.apart:
                used = {} if world.is_late else used_by(world, tensors_in(value, world))
            if used:
                what = "tensor" if world.is_tensor(value) else name_of(type(value))
                yield f"{what} `{variable}` of `{frame.f_code.co_name}` at {place}", place, value, used
