"""Every saved tensor is spilled and what comes of it noted, for two steps; then a plan is made of the notes, and followed."""

from __future__ import annotations

import weakref
from typing import Any

from stalloc import _native
from stalloc._levers import spill
from stalloc._levers.away import Away, weak
from stalloc._levers.spill import FETCH, OUT, PACKED, RELEASE, RETURNED, UNPACKED, Call, Packed, Spiller
from stalloc._steps import marks

#: The first step makes the optimizer's states; the second is as all that follow.
STEPS = 2

#: A block of PyTorch's allocator is a multiple of it, bytes.
BLOCK = 512


class _Notes:
    """What a section was like."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self.moments: list[tuple[int, int, Any, int]] = []
        #: An event of the device at each moment, and the most live bytes up to the next.
        self._events: list[Any] = []
        self.live: list[int] = []
        #: Of each storage: bytes, and the moments at which it was packed, gone and needed.
        self.storages: list[list[int | None]] = []
        #: Of what is held by others still: its storage and its number; of what is away its number.
        self.held: list[tuple[Any, int]] = []
        self.numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def moment(self, *moment: Any) -> int:
        """Something happens: a copy could begin here."""
        self._look()
        self.moments.append(moment)
        self._record()
        return len(self.moments) - 1

    def _look(self) -> None:
        live = _native.peak_since() or 0
        if self.moments:
            self.live.append(live)
        still = []
        for storage, number in self.held:
            if storage.expired():
                self.storages[number][2] = len(self.moments)
            else:
                still.append((storage, number))
        self.held = still

    def end(self) -> None:
        """The next section begins, or the trial ends."""
        if len(self.live) < len(self.moments):
            self._look()
            self._record()

    def _record(self) -> None:
        if self._torch.cuda.is_initialized():
            self._events.append(self._torch.cuda.Event(enable_timing=True))
            self._events[-1].record()

    def work(self) -> list[int]:
        """How long the device works from each moment to the next, nanoseconds; nothing of a model on the host."""
        return [_between(*pair) for pair in zip(self._events, self._events[1:])] or [0] * len(self.live)

    def candidates(self) -> list[tuple[int, int, int, int]]:
        """What could have been kept."""
        of = [(size, packed, gone, needed) for size, packed, gone, needed in self.storages if gone is not None and needed is not None]
        return [one for one in of if one[1] <= one[2] < one[3]]  # type: ignore[operator,misc]

    def held_bytes(self) -> int:
        """The most live bytes, were nothing spilled."""
        change = [0] * (len(self.moments) + 1)
        for size, _, gone, needed in self.candidates():
            change[gone] += _block(size)
            change[needed] -= _block(size)
        kept, most = 0, 0
        for live, more in zip(self.live, change):
            kept += more
            most = max(most, live + kept)
        return most


def _between(sooner: Any, later: Any) -> int:
    later.synchronize()
    return max(int(sooner.elapsed_time(later) * 1e6), 0)


def _block(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


class _Empty(Away):
    """A storage of a stand-in, which has no bytes to copy: so steps take the time that they take without copies."""

    def __init__(self, torch: Any, storage: Any, device: Any) -> None:
        self._torch, self._device, self._streams = torch, device, None
        self._again = self._left = self._arrived = None
        self._here = storage
        self._size, self._weak = storage.nbytes(), weak(storage)

    def storage(self) -> Any:
        # What others hold still is not there twice.
        here = self._here or self._torch.UntypedStorage._new_with_weak_ptr(self._weak.cdata)
        if here is None and self._again is None:
            self._again = self._torch.empty(self._size, dtype=self._torch.uint8, device=self._device).untyped_storage()
        return self._again if here is None else here


class _Rehearsed(Call):
    """A call of which everything large is spilled, and noted."""

    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        self._seen: dict[Any, int] = {}
        self._notes = self.spiller.notes  # type: ignore[attr-defined]

    def pack(self, tensor: Any) -> Any:
        if type(tensor) is not self._plain or tensor.nbytes < spill.LEAST or tensor.is_cuda is not self._is_cuda:
            return tensor
        kind = tensor.dtype, tensor.shape, tensor.stride()
        count = self._seen[kind] = self._seen.get(kind, -1) + 1
        away = self.known(tensor) or self.go(0, tensor)
        if self._is_noted():
            self._packed((kind, count), tensor.untyped_storage(), away)
        if away is not None:
            away.release()
        return Packed(away or tensor, tensor.storage_offset(), (), (kind, count))

    def unpack(self, packed: Any) -> Any:
        if type(packed) is Packed and self._is_noted():
            self._unpacked(packed.at, packed.what)
        return super().unpack(packed)

    def returned(self) -> None:
        if self._is_noted():
            self._notes.moment(self.number, RETURNED, None, 0)

    def _is_noted(self) -> bool:
        """Whether its section is the one that is being noted."""
        return self._notes is not None and self._notes is self.spiller.notes  # type: ignore[attr-defined]

    def _packed(self, at: Any, storage: Any, away: Any) -> None:
        """A tensor of the model is saved."""
        notes = self._notes
        moment = notes.moment(self.number, PACKED, *at)
        if away is not None and away not in notes.numbers:
            number = notes.numbers[away] = len(notes.storages)
            notes.storages.append([storage.nbytes(), moment, None, None])
            notes.held.append((weak(storage), number))

    def _unpacked(self, at: Any, what: Any) -> None:
        """A saved tensor is needed."""
        notes = self._notes
        moment = notes.moment(self.number, UNPACKED, *at)
        number = notes.numbers.get(what) if isinstance(what, Away) else None
        if number is not None and notes.storages[number][3] is None:
            notes.storages[number][3] = moment


class Rehearsal(Spiller):
    """Spills all of some steps, then by a plan. ``told``: allowed live bytes, and a second's bytes of the link."""

    def __init__(self, told: str = "") -> None:
        super().__init__({"host": 0, "kinds": [], "victims": [], "calls": []})
        self._told = told
        # A trial may end in the midst of an iteration, where an optimizer steps: the one before is to have had the plan, too.
        marks.more_steps = 1
        self._steps = 0
        #: The section that is being noted; and by the model that began it, the one of the step with the most bytes.
        self.notes: _Notes | None = None
        self._fullest: dict[int, _Notes] = {}
        #: What it came to, in words.
        self.what = ""

    def __deepcopy__(self, _memo: Any) -> Spiller:
        return Spiller(self.plan)

    _is_over = False

    def is_idle(self) -> bool:
        return self._is_over and super().is_idle()

    def section_begins(self, torch: Any, number: int) -> None:
        self._end_notes()
        super().section_begins(torch, number)
        if not self._is_over:
            self.notes = _Notes(torch) if self._steps == STEPS - 1 else None
        self.kind_of_call = Call if self._is_over else _Rehearsed

    def away(self, torch: Any, victim: int, storage: Any, device: Any) -> Any:
        if self._is_over:
            return super().away(torch, victim, storage, device)
        if device.type == "cuda":
            return _Empty(torch, storage, device)
        return Away(torch, storage, device, torch.empty(storage.nbytes(), dtype=torch.uint8), None)

    def _end_notes(self) -> None:
        """A section is over; the plan is made once the last step's are."""
        notes, self.notes, number = self.notes, None, self._first
        if notes is not None:
            notes.end()
            if number not in self._fullest or notes.held_bytes() > self._fullest[number].held_bytes():
                self._fullest[number] = notes
        if self._steps >= STEPS and not self._is_over:
            self._is_over = True
            self._follow()
            self._fullest = {}

    def stepped(self) -> None:
        """The optimizer has stepped."""
        self._steps += 1

    def note(self) -> dict[str, Any] | None:
        """What the trial says of it; None if there is no plan, or nothing in it."""
        self._end_notes()
        return {"plan": self.plan, "what": self.what} if self.plan["victims"] else None

    def _follow(self) -> None:
        """Makes the plan."""
        allowed, link = (int(word) for word in (self._told or "0:1").split(":"))
        sections = {number: (notes, notes.candidates()) for number, notes in self._fullest.items()}
        kinds: dict[str, int] = {}
        calls: dict[tuple[int, int], list[Any]] = {}
        places: list[tuple[int, int]] = []
        most = 0
        for first, (notes, found) in sections.items():
            blocks = [(_block(size), packed, gone, needed) for size, packed, gone, needed in found]
            victims, bytes_ = _native.spill_plan(list(zip(notes.work(), notes.live)), blocks, allowed, spill.host_memory(), link)
            most = max(most, bytes_)
            for candidate, release, fetch, offset in victims:
                for act, moment in ((OUT, found[candidate][1]), (RELEASE, release), (FETCH, fetch)):
                    number, when, kind, count = notes.moments[moment]
                    index = None if kind is None else kinds.setdefault(spill.text_of(kind), len(kinds))
                    calls.setdefault((first, number), []).append((when, index, count, act, len(places)))
                places.append((found[candidate][0], offset))
        if len(places) > spill.MOST_VICTIMS:
            places, calls = [], {}
        plan = {"host": most, "kinds": list(kinds), "victims": places, "calls": [(*call, acts) for call, acts in calls.items()]}
        total, candidates = sum(size for size, _ in places), sum(len(found) for _, found in sections.values())
        self.what = f"{len(places)} of {candidates} saved tensors wait in host memory across the peak, {_native.format_bytes(total)}"
        has_said, self._has_said = self._has_said, False
        Spiller.__init__(self, plan)
        self._has_said = has_said
