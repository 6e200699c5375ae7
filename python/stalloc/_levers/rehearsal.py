"""Every saved tensor is spilled and what comes of it noted, for two steps; then a plan is made of the notes, and followed."""

from __future__ import annotations

import os
import weakref
from typing import Any

from stalloc import _native
from stalloc._levers import spill
from stalloc._levers.spill import FETCH, OUT, PACKED, RELEASE, RETURNED, UNPACKED, Away, Call, Packed, Spiller

#: The first step makes the optimizer's states; the second is as all that follow.
STEPS = 2

#: A block of PyTorch's allocator is a multiple of it, bytes.
BLOCK = 512


class _Notes:
    """What a call of the model and its backward pass were like."""

    def __init__(self, torch: Any, call: Any) -> None:
        self._torch, self.call = torch, call
        self.moments: list[tuple[int, Any, int]] = []
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
        """The step is over, or the model is called again."""
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

    def step(self, before: _Notes | None) -> int:
        """How long the step took that ended with this call, by the last call of the step before, nanoseconds; 0 if that is not known."""
        return _between(before._events[-1], self._events[-1]) if before is not None and before._events and self._events else 0

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
        self._size, self._weak = storage.nbytes(), spill.weak(storage)

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

    def pack(self, tensor: Any) -> Any:
        if type(tensor) is not self._plain or tensor.nbytes < spill.LEAST or tensor.is_cuda is not self._is_cuda:
            return tensor
        kind = tensor.dtype, tensor.shape, tensor.stride()
        count = self._seen[kind] = self._seen.get(kind, -1) + 1
        away = self.known(tensor) or self.go(0, tensor)
        self.spiller.packed(self, (kind, count), tensor.untyped_storage(), away)  # type: ignore[attr-defined]
        return Packed(away or tensor, tensor, (), (kind, count))

    def unpack(self, packed: Any) -> Any:
        if type(packed) is Packed:
            self.spiller.unpacked(self, packed.at, packed.what)  # type: ignore[attr-defined]
        return super().unpack(packed)


class Rehearsal(Spiller):
    """Spills all of some steps, then by a plan. ``told``: allowed live bytes, and a second's bytes of the link."""

    def __init__(self, told: str = "") -> None:
        super().__init__({"host": 0, "kinds": [], "victims": [], "acts": []})
        self._told = told
        self._steps = 0
        #: The call that is being noted, and that of the step with the most bytes.
        self._notes: _Notes | None = None
        self._fullest: _Notes | None = None
        #: The last call so far, and that of the step before.
        self._last: _Notes | None = None
        self._before: _Notes | None = None
        #: What it came to: nanoseconds of a step without copies, how much longer it takes with them, and in words.
        self.step, self.added, self.what = 0, 0, ""

    def __deepcopy__(self, _memo: Any) -> Spiller:
        return Spiller(self.plan)

    _is_over = False

    def is_idle(self) -> bool:
        return self._is_over and super().is_idle()

    def begin(self, torch: Any, model: Any) -> Any:
        self.kind_of_call = Call if self._is_over else _Rehearsed
        call = super().begin(torch, model)
        if not self._is_over:
            self._end_notes()
            self._notes = _Notes(torch, call)
        return call

    def away(self, torch: Any, victim: int, storage: Any, device: Any) -> Any:
        if self._is_over:
            return super().away(torch, victim, storage, device)
        if device.type == "cuda":
            return _Empty(torch, storage, device)
        return Away(torch, storage, device, torch.empty(storage.nbytes(), dtype=torch.uint8), None)

    def packed(self, call: Any, at: Any, storage: Any, away: Any) -> None:
        """A tensor of the model is saved."""
        notes = self._notes
        if notes is None or call is not notes.call:
            return
        moment = notes.moment(PACKED, *at)
        if away is not None and away not in notes.numbers:
            number = notes.numbers[away] = len(notes.storages)
            notes.storages.append([storage.nbytes(), moment, None, None])
            notes.held.append((spill.weak(storage), number))
        if away is not None:
            away.release()

    def unpacked(self, call: Any, at: Any, what: Any) -> None:
        """A saved tensor is needed."""
        notes = self._notes
        if notes is None or call is not notes.call:
            return
        moment = notes.moment(UNPACKED, *at)
        number = notes.numbers.get(what) if isinstance(what, Away) else None
        if number is not None and notes.storages[number][3] is None:
            notes.storages[number][3] = moment

    def returned(self, call: Any) -> None:
        if self._is_over:
            super().returned(call)
        elif self._notes is not None and call is self._notes.call:
            self._notes.moment(RETURNED, None, 0)

    def _end_notes(self) -> None:
        notes, self._notes = self._notes, None
        if notes is not None:
            notes.end()
            notes.call = None
            self._last = notes
            if self._fullest is None or notes.held_bytes() > self._fullest.held_bytes():
                self._fullest = notes

    def stepped(self) -> None:
        """The optimizer has stepped."""
        self._steps += 1
        self._end_notes()
        if self._steps < STEPS:
            self._fullest, self._before = None, self._last
        elif not self._is_over:
            self._is_over = True
            self.step = self._last.step(self._before) if self._last is not None else 0
            self._follow(self._fullest)
            self._fullest = self._last = self._before = None

    def note(self) -> dict[str, Any] | None:
        """What the trial says of it; None if there is no plan, or nothing in it."""
        return {"plan": self.plan, "what": self.what, "step": self.step, "added": self.added} if self.plan["victims"] else None

    def _follow(self, notes: Any) -> None:
        """Makes the plan."""
        allowed, link = (int(word) for word in (self._told or "0:1").split(":"))
        ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1") or "1")
        host = (_native.host_memory_left() or 1 << 40) // max(ranks, 1) * 3 // 4
        found = [] if notes is None else notes.candidates()
        moments = [] if notes is None else list(zip(notes.work(), notes.live))
        blocks = [(_block(size), *when) for size, *when in found]
        victims, host, _peak, self.added = _native.spill_plan(moments, blocks, allowed, host, link)
        if len(victims) > spill.MOST_VICTIMS:
            victims = []
        kinds: dict[str, int] = {}
        acts = []
        for number, (candidate, release, fetch, _offset) in enumerate(victims):
            for act, moment in ((OUT, found[candidate][1]), (RELEASE, release), (FETCH, fetch)):
                when, kind, count = notes.moments[moment]
                index = None if kind is None else kinds.setdefault(spill.text_of(kind), len(kinds))
                acts.append((when, index, count, act, number))
        sizes = [found[candidate][0] for candidate, *_ in victims]
        plan = {"host": host, "kinds": list(kinds), "victims": [(size, victim[3]) for size, victim in zip(sizes, victims)], "acts": acts}
        self.what = f"{len(victims)} of {len(found)} saved tensors wait in host memory across the peak, {_native.format_bytes(sum(sizes))}"
        has_said, self._has_said = self._has_said, False
        Spiller.__init__(self, plan)
        self._has_said = has_said
