"""The part of stalloc that is written in Rust."""

from pathlib import Path
from typing import Any, Callable, Optional

from stalloc.results import MemoryStats

__version__: str
#: CRC-32 of this file as it was when the module was built.
interface: int

def read_trace(path: str) -> dict[str, Any]:
    """Read a recording of any known format; ValueError, in a sentence, if the file cannot be read.

    ``traces`` has for each device its ``entries``, dicts as PyTorch's memory history has them (``action``, ``addr``,
    ``size``, ``stream``, ``frames``, ``time_us``), with marks in their places.
    """

def plan_folder(folder: Path, out: Path, rank: Optional[int]) -> tuple[list[tuple[str, str]], list[str]]: ...
def plan_file(path: str, output: Optional[str], device: Optional[int], seconds: float) -> tuple[str, list[str]]:
    """Plan a trace: what `stalloc plan --json` prints, and notes; ValueError, in a sentence, if it cannot be."""

def plan_buffers(wanted: dict[str, Any], callback: Optional[Callable[[int, int], Any]]) -> tuple[bytes, int, int, bool, bool]:
    """Place buffers: offsets, peak, lower bound, whether it is proven the least, and whether Ctrl-C ended the search."""

def spill_plan(
    moments: list[tuple[int, int]], candidates: list[tuple[int, int, int, int]], capacity: int, host: int, link: int
) -> tuple[list[tuple[int, int, int, int]], int]:
    """Plan what waits in host memory; ``moments``: nanoseconds up to the next, and largest live bytes meanwhile with every candidate away;
    ``candidates``: bytes, and the moments at which each is packed, held by nothing else, and needed; ``link``: bytes a second each way.

    The victims (candidate, moment of its release, of the copy back, host offset) and host bytes. ValueError if the moments are not in order.
    """

def host_memory_left() -> Optional[int]:
    """Bytes of the host's memory that can be had now; None if the system does not say."""

def simulate_file(
    path: str, device: Optional[int], allocators: list[str], plan: Optional[str], capacity: Optional[int], smallest: bool
) -> tuple[str, list[str]]:
    """Replay a trace: what `stalloc simulate --json` prints, and notes; ValueError, in a sentence, if it cannot be."""

def format_bytes(count: int) -> str:
    """A number of bytes for people: ``51.53 GiB``."""

def redacted(words: list[str]) -> str:
    """The words of a command as one line, without what looks like a secret."""

class PrivateFolder:
    """A folder that only this user (and root) can write to; each function raises OSError, in a sentence, if that cannot be had."""

    path: Path

    @staticmethod
    def kept(name: str) -> "PrivateFolder":
        """The folder called ``name`` of what is kept between runs, in the user's cache; what lies in it can be run."""

    @staticmethod
    def of_machine(name: str) -> "PrivateFolder":
        """The folder called ``name`` that all of the user's processes of this machine find."""

    @staticmethod
    def open(path: Path) -> "PrivateFolder":
        """A private folder at this path, which may be in a shared one; nothing in it is to be run."""

    def below(self, name: str) -> "PrivateFolder":
        """A folder in it."""

    def fileno(self) -> int:
        """The descriptor by which it is open."""

    def read(self, name: str, most: int) -> bytes:
        """What a plain file of ours holds, if it is at most so many bytes; follows no link and waits for no pipe."""

    def write(self, name: str, content: bytes) -> None:
        """Write a file, whole or not at all."""

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

def start(directory: str, rank: int, metadata: dict[str, str], settings: dict[str, Any]) -> None:
    """Start recording this process into ``directory``; ``settings``: a snapshot's ``allocator_settings``."""

def attach(libraries: str) -> None:
    """Attach the tracker to PyTorch's native allocator; RuntimeError if this PyTorch does not have what it takes."""

def detach() -> None:
    """Ignore the tracker from now on."""

def agrees(device: int, entries: list[dict[str, Any]]) -> bool:
    """Whether the tracker's events of a device are those of PyTorch's history."""

def stacks(device: int, entries: list[dict[str, Any]]) -> bool:
    """Give the tracker's allocations the stacks that the history knows; false if they are not the same ones."""

def forget_recent() -> None:
    """Allocations wait for no stacks from here on, and are remembered for ``late_stacks``: the history has just been cleared."""

def has_new_peak() -> bool:
    """Whether live bytes have been higher than when this was last true."""

def peak_since() -> Optional[int]:
    """Most live bytes since this was last asked, of the device that has most; None where nothing is recorded."""

def step_differs() -> bool:
    """A step is over: whether it asked for something else than the one before, or took live bytes higher."""

def late_stacks(device: int, entries: list[dict[str, Any]], shared: bool) -> bool:
    """Tell the stacks of allocations that are recorded already; false if they are not the same ones. ``shared``: the history may hold
    some of before."""

def stack_at(device: int, address: int, frames: list[tuple[str, str, int]]) -> None:
    """Tell where the block that lives at an address was asked for; frames are (file, function, line), innermost first."""

def stack_of_failed(device: int, frames: list[tuple[str, str, int]]) -> None:
    """Tell where the last request that failed was made."""

def history(device: int, entries: list[dict[str, Any]]) -> None:
    """Take the history for what happened since the last flush."""

def wait_for_stacks(wait: bool) -> None:
    """Whether allocations wait for their call stacks before they are written."""

def on_flush(callable: Optional[Callable[[], None]]) -> None:
    """Set what is called on the main thread about twice a second."""

def finish(rank: int, ended_by: Optional[str] = None) -> None:
    """Write everything and end the files; ``ended_by``: the exception that ended the program."""

def abandon() -> None:
    """Stop recording as things are, after an error."""

def leave_to_parent() -> None:
    """Stop recording in a forked child, which is not the recorded process."""

def is_recording() -> bool:
    """Whether this process is being recorded."""

def log(text: str) -> None:
    """A line for whoever wonders what the recorder does."""

def show_progress(steps: Optional[int]) -> None:
    """Print on standard error how far the recording is: after a step, at most one line a second; ``steps``: how many there will be."""

def mark_step_begin() -> None: ...
def mark_step_end() -> None: ...
def mark_phase(kind: str, micro_batch: int) -> None: ...
def mark_module_enter(name: str) -> None: ...
def mark_module_exit(name: str) -> None: ...
def host_read(bytes: int, frames: list[tuple[str, str, int]], answer: Optional[str]) -> None:
    """The program read bytes back from the device; frames are (file, function, line), innermost first."""

def observe_operations(
    libraries: str,
    probes: list[tuple[int, list[int], list[int], int, int, int, int, int]],
    called: int,
    call: Callable[[], Any],
    device: tuple[int, int],
    host: tuple[int, int],
    classify: Callable[[int, str, str], tuple[int, int, int]],
    compute: Callable[[int, list[Any], bool], Optional[list[tuple[int, list[int], Any]]]],
) -> None:
    """Observe PyTorch's operations in a dry run; RuntimeError if this PyTorch does not have what is needed."""

def numbers_read() -> Optional[int]:
    """The type of the numbers that the operation which runs on this thread reads from the device; none if it reads no tensor."""

def answer_reads(answer: Callable[[int, int, int, int], bool]) -> None:
    """Have a function called at each copy from the device: where to, bytes, where from, flags; it says whether it wrote other bytes there."""

def computed_later(address: int, bytes: int) -> Optional[tuple[int, int]]:
    """What the bytes at an address of a device are that were to be computed later, and bytes of it that lie before; None if they are not."""

def operation_reads(bytes: int) -> Optional[tuple[int, bool, bool]]:
    """What an operation that runs on this thread reads in so many bytes: a number, whether it is computed, and from what was drawn."""

def operation_reads_its_own() -> bool:
    """Whether the operation that runs on this thread reads what it has just computed, and no values of the program."""

def operations_counted() -> Optional[int]:
    """Floating-point operations of this process so far; None where operations are not observed."""

def serve_plans(folder: Path, rank: int) -> dict[int, Path]:
    """A rank's plans in a folder or its ``output/plan``, by device; plans of one rank alone serve every rank."""

def serve_prepare(device: int, path: Path) -> dict[str, Any]:
    """Has a device (-1: host memory) follow a plan; returns what the plan says of itself. ValueError if it is none."""

def serve_learn(device: int) -> bool:
    """Has a device served by the open arena and learns from it; False if it has a plan already: then only the learning begins."""

def serve_solid_size(wish: str) -> int | None: ...
def unknown_settings(names: list[str]) -> list[str]: ...
def serve_solid(more: int) -> None: ...
def serve_keep(folder: Path, rank: int) -> int:
    """Ends the learning and keeps what was learned as plans in a folder; how many. One line says what cannot be written."""

def serve_keep_in(folder: Path, rank: int) -> None:
    """Has what is learned kept in a folder from time to time, as plans of this rank."""

def serve_unprepare() -> None:
    """Takes back all plans that were not begun with."""

def serve_can_sleep(device: int) -> None:
    """RuntimeError if the arena of a device cannot sleep now; asks nothing of the device."""

def serve_sleep(device: int, keep: list[tuple[int, int]], discard: list[tuple[int, int]]) -> Optional[dict[str, int]]:
    """Has the arena of a device sleep: all but the ranges (start, bytes) of ``keep``, without the contents of those of ``discard``. Figures:
    ``bytes`` copied by ``copies``, device ``memory`` given back, ``host`` memory kept; None if there is no arena. RuntimeError if it
    cannot, MemoryError if the host lacks memory."""

def serve_wake(device: int, first: list[tuple[int, int]]) -> Optional[dict[str, int]]:
    """Has the arena of a device wake; figures as above. torch.cuda.OutOfMemoryError if the device lacks memory: then all sleeps on."""

def serve_asleep(device: int) -> Optional[int]:
    """Bytes of a device's arena that are on the host; None while it is awake."""

def serve_sleeps_at(address: int) -> bool:
    """Whether what lies at an address is asleep."""

def serve_table() -> int:
    """Address of the table of functions that a shim calls."""

def serve_step() -> None: ...
def serve_forbid_waits() -> None:
    """Have no stream wait for another: memory that another stream used last is taken over only once it is done."""

def serve_report(device: int) -> Optional[MemoryStats]:
    """What was done on a device; None if nothing was served there."""

def serve_outcome(device: int) -> dict[str, Any] | None:
    """What came of learning on a device: ``finding`` (``vary``, ``no_time`` or ``refused``) says why no plan is followed, ``pytorch`` and
    ``expandable`` what PyTorch's allocator would have held, bytes, ``runs_out`` which of them would have run out. None where nothing is learned, or it takes too long."""

def serve_on_departure(callback: Callable[[int, int], None]) -> None:
    """Have ``callback(device, thread)`` called in the main thread, once per device, after the program left its plan."""

def host_log() -> int:
    """Address of the table of functions that the shim of the host reports to."""
