"""Saved tensors of models' forward passes that wait in host memory across the peak, by a plan of the step.

A *section* is some calls of models, of which one still has its backward pass to come when the next begins. A plan names tensors by the model
that began the section, which call of it, type, sizes, strides and which of their kind they are in the call. What is not as it says stays on
the device: a wrong plan costs memory or time, never values.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from typing import Any

from stalloc import _native
from stalloc._common.output import say
from stalloc._levers.applied import Applied, apply, has_hooks, owner_of
from stalloc._levers.away import Away, Version, page_locked, weak
from stalloc._levers.host_states import LEAST as LEAST

#: A plan has no more victims: it is handed to the job in one variable of its environment, of 128 KiB at most.
MOST_VICTIMS = 1500

#: What is done at a moment of the plan, and the kinds of moments.
OUT, RELEASE, FETCH = range(3)
PACKED, UNPACKED, RETURNED = range(3)


def spill(module: Any, spiller: Spiller, number: int = 0) -> None:
    """Have what the forward pass of a model, the script's ``number``-th, saves spilled."""
    apply(module, _spilled, spiller=spiller, number=number)


def _spilled(applied: Applied, arguments: Any, options: Any) -> Any:
    import torch

    forward, spiller = applied.__wrapped__, applied.settings["spiller"]
    if not torch.is_grad_enabled() or not spiller.can_spill(torch, owner_of(applied)):
        return forward(*arguments, **options)
    call = spiller.begin(torch, owner_of(applied), applied.settings["number"])
    try:
        with torch.autograd.graph.saved_tensors_hooks(call.pack, call.unpack):
            result = forward(*arguments, **options)
    finally:
        spiller.is_inside = False
    call.returned()
    return result


class Packed:
    """What is saved in place of a tensor: it or what it has become, and what is done when it is needed."""

    __slots__ = ("what", "offset", "acts", "at", "__weakref__")

    def __init__(self, what: Any, offset: int, acts: Any, at: Any) -> None:
        self.what, self.offset, self.acts, self.at = what, offset, acts, at


#: Of a tensor that the plan does not name.
_NOTHING: tuple[Any, Any] = (), ()


class Acts:
    """What a plan does in one call."""

    def __init__(self) -> None:
        #: When a tensor is packed and when it is unpacked, by its kind and which of them it is; and when the forward pass is over.
        self.of_tensors: dict[Any, dict[int, tuple[list[Any], list[Any]]]] = {}
        self.at_return: list[tuple[int, int]] = []
        #: How many victims go.
        self.going = 0

    def add(self, moment: int, at: Any, act: int, victim: int) -> None:
        """Something is to be done."""
        self.going += act == OUT
        if moment == RETURNED:
            self.at_return.append((act, victim))
        else:
            self.of_tensors.setdefault(at[0], {}).setdefault(at[1], ([], []))[moment].append((act, victim))


class Call:
    """One call of a model, and the backward pass through it."""

    def __init__(self, torch: Any, spiller: Spiller, kept: set[int], is_cuda: bool, number: int, acts: Acts) -> None:
        self._torch, self.spiller, self._kept = torch, spiller, kept
        self._plain, self._is_cuda = torch.Tensor, is_cuda
        #: Which of its section it is.
        self.number = number
        #: Of each kind: tensors so far, and what is done with which.
        self._planned: dict[Any, list[Any]] = {kind: [0, acts] for kind, acts in acts.of_tensors.items()}
        self._acts, self._missing = acts, acts.going
        #: What it keeps on the device.
        self._keeps: list[weakref.ref[Packed]] = []
        self._shared = spiller.shared
        #: Whether its backward pass has begun.
        self.is_used = False

    def pack(self, tensor: Any) -> Any:
        """What is saved in place of a tensor. Most are not in the plan, and are to take little time."""
        if type(tensor) is not self._plain or tensor.nbytes < LEAST or tensor.is_cuda is not self._is_cuda:
            return tensor
        kind = tensor.dtype, tensor.shape, tensor.stride()
        is_insured = self.spiller.is_insured
        planned = self._planned.get(kind)
        if planned is None:
            if not is_insured and not self._shared:
                return tensor
            planned = self._planned[kind] = [0, {}]
        count = planned[0]
        planned[0] = count + 1
        now, later = planned[1].get(count, _NOTHING)
        away = self.known(tensor) if self._shared else None
        for act, victim in now:
            if act == OUT and away is None:
                away = self.go(victim, tensor)
        if now:
            self.perform(now)
        if away is None and not later and not is_insured:
            return tensor
        if away is not None:
            return Packed(away, tensor.storage_offset(), later, (kind, count))
        packed = Packed(tensor, 0, later, (kind, count))
        if is_insured:
            self._keeps.append(weakref.ref(packed))
        return packed

    def go_now(self, device: int | None) -> None:
        """What it keeps on a device begins to go, and goes by the plan from the next step on, all of it by now."""
        kept = [packed for packed in (one() for one in self._keeps) if packed is not None]
        for packed in kept:
            tensor = packed.what
            if type(tensor) is not self._plain or tensor.device.index != device:
                continue
            away = self.known(tensor)
            if away is None and self._can_go(tensor, tensor.untyped_storage()):
                victim = self.spiller.one_more(self._torch, tensor)
                away = self.go(victim, tensor) if victim else None
                if away is not None:
                    self._acts.add(PACKED, packed.at, OUT, victim)
                    self._acts.add(PACKED, kept[-1].at, RELEASE, victim)
            packed.offset = tensor.storage_offset()
            packed.what = tensor if away is None else away

    def go(self, victim: int, tensor: Any) -> Any:
        """Begins to spill a tensor's storage; None where it stays."""
        storage = tensor.untyped_storage()
        away = self.spiller.away(self._torch, victim, storage, tensor.device) if self._can_go(tensor, storage) else None
        if away is not None:
            self._missing -= 1
            self._shared[storage._cdata] = (weak(storage), Version(tensor), weakref.ref(away))
        return away

    def known(self, tensor: Any) -> Any:
        """What the tensor's storage has become, if it is away."""
        known = self._shared.get(tensor.untyped_storage()._cdata)
        if known is None or known[0].expired() or not known[1].is_of(self._torch, tensor):
            return None
        return known[2]()

    def _can_go(self, tensor: Any, storage: Any) -> bool:
        """Whether nothing but this graph has a claim on the storage, and its bytes are all there is to it."""
        is_plain = tensor.device.type in ("cuda", "cpu") and tensor.layout == self._torch.strided and not tensor.is_conj() and not tensor.is_neg()
        known = self._shared.get(storage._cdata)
        is_changed = known is not None and not known[0].expired()
        is_leaf = tensor.is_leaf and tensor.requires_grad
        return is_plain and not is_leaf and storage.nbytes() >= LEAST and not is_changed and storage.data_ptr() not in self._kept

    def unpack(self, packed: Any) -> Any:
        """The tensor that was saved."""
        self.is_used = True
        if type(packed) is not Packed:
            return packed
        if packed.acts:
            self.perform(packed.acts)
        what = packed.what
        if type(what) is self._plain:
            return what
        storage = what.storage()
        kind, shape, strides = packed.at[0]
        return self._torch.empty(0, dtype=kind, device=storage.device).set_(storage, packed.offset, shape, strides)

    def returned(self) -> None:
        """The forward pass is over."""
        self.perform(self._acts.at_return)
        if self._missing > 0:
            self.spiller.say_differs()

    def perform(self, acts: Any) -> None:
        """Releases and fetches what a moment of the plan has."""
        for wanted in (RELEASE, FETCH):
            for act, victim in acts:
                away = self.spiller.lying(victim) if act == wanted else None
                if away is not None:
                    self.spiller.release(away) if act == RELEASE else away.fetch()


class Spiller:
    """Spills by a plan."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        kinds = [_kind(text) for text in plan["kinds"]]
        self._acts: dict[tuple[int, int], Acts] = {}
        self._places: list[tuple[int, int]] = [(size, offset) for size, offset in plan["victims"]]
        is_inside = all(0 < size and 0 <= offset <= plan["host"] - size for size, offset in self._places)
        for first, number, rows in plan["calls"]:
            acts = self._acts.setdefault((first, number), Acts())
            for moment, kind, count, act, victim in rows:
                is_inside = is_inside and 0 <= victim < len(self._places)
                acts.add(moment, None if kind is None else (kinds[kind], count), act, victim)
        if not is_inside:
            raise ValueError("a plan to spill is damaged: a tensor lies outside its host memory, or is not there")
        #: Who lies in the place of each victim, and the victims whose places overlap.
        self._lying: list[Any] = [None] * len(self._places)
        self._near = _overlapping(self._places)
        self._arena: Any = None
        self._streams: dict[Any, Any] = {}
        #: What is to be released yet.
        self._pending: dict[Away, None] = {}
        self._has_said = False
        #: Calls in a row with hooks of the script's own around them.
        self._refused = 0
        #: Whether what it keeps may go when memory runs out, and tensors that did.
        self.is_insured, self._is_relieving, self._went = False, False, 0
        #: Host memory of victims that the plan has not.
        self._more: dict[int, Any] = {}
        #: Whether a model is being called: what it calls belongs to that call.
        self.is_inside = False
        #: Of the section: the model that began it, its calls, and what is away by its storage: that, its version, and what it has become.
        self._first = 0
        self._calls: list[Any] = []
        self.shared: dict[int, tuple[Any, Version, Any]] = {}

    def __deepcopy__(self, _memo: Any) -> Spiller:
        return type(self)(self.plan)

    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._places or self._arena is False

    def can_spill(self, torch: Any, model: Any) -> bool:
        """Whether this call of the model is one to spill in: only the innermost pair of hooks acts, and it is the program's."""
        if self.is_idle() or self.is_inside:
            return False
        if not torch._C._autograd._saved_tensors_hooks_is_enabled() or has_hooks(torch):
            self._refused += 1
            if self._refused > len(self.plan["calls"]):  # none of those that the plan knows has come
                self._say("the script has hooks of saved tensors around calls of its model, which go first; nothing of these is spilled")
            return False
        return not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())

    def _say(self, text: str) -> None:
        if not self._has_said:
            self._has_said = True
            say(f"spill: {text}")

    #: What follows a call of the model.
    kind_of_call: type[Call] = Call

    def begin(self, torch: Any, model: Any, number: int) -> Call:
        """The script's ``number``-th model is called."""
        self._refused = 0
        calls = (call() for call in reversed(self._calls))
        if all(call is None or call.is_used for call in calls):
            self.section_begins(torch, number)
        self.is_inside = True
        tensors = [*model.parameters(), *model.buffers()]
        is_cuda = tensors[0].is_cuda if tensors else torch.cuda.is_initialized()
        kept = {getattr(one, "_local_tensor", one).untyped_storage().data_ptr() for one in tensors}
        acts = self._acts.setdefault((self._first, len(self._calls)), Acts())
        call = self.kind_of_call(torch, self, kept, is_cuda, len(self._calls), acts)
        self._calls.append(weakref.ref(call))
        return call

    def section_begins(self, _torch: Any, number: int) -> None:
        """A section begins. What another has still on the device is released."""
        for away in list(self._pending):
            self.release(away)
        self._first, self._calls, self.shared = number, [], {}

    def lying(self, victim: int) -> Away | None:
        """What a victim has become, if it is alive."""
        return None if self._lying[victim] is None else self._lying[victim]()

    def away(self, torch: Any, victim: int, storage: Any, device: Any) -> Away | None:
        """Begins to spill; None where its place on the host is taken, or of another size."""
        size, offset = self._places[victim]
        if storage.nbytes() != size or any(self.lying(near) is not None for near in self._near[victim]):
            self.say_differs()
            return None
        if self._arena is None:
            self._arena = self._taken(torch, device)
        if self._arena is False:
            return None
        host = self._more[victim] if victim in self._more else self._arena[offset : offset + size]
        away = Away(torch, storage, device, host, self._streams_of(torch, device))
        self._lying[victim] = weakref.ref(away)
        self._pending[away] = None
        return away

    def _taken(self, torch: Any, device: Any) -> Any:
        """Host memory for all victims, taken once; False where it cannot be had."""
        try:
            return page_locked(torch, self.plan["host"], device, self, self._say)
        except (MemoryError, RuntimeError):
            self._say(f"{_native.format_bytes(self.plan['host'])} of host memory cannot be had; nothing is spilled")
            return False

    def one_more(self, torch: Any, tensor: Any) -> int:
        """The number of a victim that the plan has not; 0 where there is no host memory for it."""
        victim, size = len(self._places), tensor.untyped_storage().nbytes()
        try:
            if size > host_memory():
                return 0
            self._more[victim] = torch.empty(size, dtype=torch.uint8, pin_memory=tensor.is_cuda)
        except RuntimeError:
            return 0
        self._places.append((size, 0))
        self._lying.append(None)
        self._near.append([victim])
        return victim

    def insure(self) -> None:
        """Have what is kept go when memory runs out."""
        session = sys.modules.get("stalloc._serve.session")  # there where our arena serves
        self.is_insured = session is not None and session.when_full(self.relieve)

    def relieve(self, device: int | None) -> bool:
        """A request is about to fail, maybe in the midst of an operation: whether anything left the device for it, which is waited for."""
        import torch

        if self._is_relieving or torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
            return False
        self._is_relieving, before = True, self._went
        # In the midst of an operation the dispatcher leaves out what it has passed; in another thread it does not.
        thread = threading.Thread(target=self._relieve, args=(torch, device))
        try:
            thread.start()
            thread.join()
        finally:
            self._is_relieving = False
        return self._went > before

    def _relieve(self, torch: Any, device: int | None) -> None:
        wait = torch.cuda.synchronize if torch.cuda.is_initialized() else lambda _device: None
        planned = len(self._places)
        wait(device)  # whichever streams have used what goes
        for call in [call() for call in self._calls]:
            if call is not None:
                call.go_now(device)
        wait(device)
        left = [away for away in map(self.lying, range(len(self._places))) if away is not None and away.leave(device)]
        for away in left:
            self._pending.pop(away, None)
        if left and not self._went:
            more = f"{len(self._places) - planned} of them, which the plan has not, go by it from the next step on"
            say(f"spill: memory ran out: {len(left)} saved tensors leave the device at once; {more}")
        self._went += len(left)

    def _streams_of(self, torch: Any, device: Any) -> Any:
        if device.type != "cuda":
            return None
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device), torch.cuda.Stream(device)
        return self._streams[device]

    def release(self, away: Away) -> None:
        """The device waits for the copy out, and its memory is others'."""
        self._pending.pop(away, None)
        away.release()

    def stepped(self) -> None:
        """The optimizer has stepped: the plan is another script's if nothing went by now."""
        if not self.is_idle() and not any(self._lying):
            self.say_differs()

    def say_differs(self) -> None:
        self._say("the script's tensors are not those of the plan; what differs stays on the device")


def host_memory() -> int:
    """Bytes of the host's memory that this rank may plan with."""
    ranks = max(int(os.environ.get("LOCAL_WORLD_SIZE", "1") or "1"), 1)
    return (_native.host_memory_left() or 1 << 40) // ranks * 3 // 4


def _kind(text: str) -> Any:
    """Type, sizes and strides as a plan has them: ``torch.float32 4x8 8x1``."""
    import torch

    kind, *numbers = text.split(" ")
    shape, strides = (tuple(int(number) for number in word.split("x") if number) for word in numbers)
    return getattr(torch, kind.removeprefix("torch.")), torch.Size(shape), strides


def text_of(kind: Any) -> str:
    """The same the other way."""
    return " ".join([str(kind[0]), *("x".join(map(str, numbers)) for numbers in kind[1:])])


def _overlapping(places: list[tuple[int, int]]) -> list[list[int]]:
    """For each place those that overlap it, itself too."""
    found: list[list[int]] = [[] for _ in places]
    reaching: list[int] = []
    for index in sorted(range(len(places)), key=lambda index: places[index][1]):
        start = places[index][1]
        reaching = [*(one for one in reaching if sum(places[one]) > start), index]
        for one in reaching:
            found[one].append(index)
            if one != index:
                found[index].append(one)
    return found
