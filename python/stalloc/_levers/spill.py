"""Saved tensors of a model's forward pass that wait in host memory across the peak, by a plan of the step.

A plan names tensors by type, sizes, strides and which of their kind they are in a call of the model. What is not as it says stays on the
device: a wrong plan costs memory or time, never values.
"""

from __future__ import annotations

import weakref
from typing import Any

from stalloc._common.output import say
from stalloc._levers.applied import Applied, apply, owner_of

#: Smaller tensors stay, bytes: their copies would take longer to begin than to make. Made up.
LEAST = 1 << 20

#: A plan has no more victims: it is handed to the job in one variable of its environment, of 128 KiB at most.
MOST_VICTIMS = 1500

#: What is done at a moment of the plan, and the kinds of moments.
OUT, RELEASE, FETCH = range(3)
PACKED, UNPACKED, RETURNED = range(3)


def spill(module: Any, spiller: Spiller) -> None:
    """Have what a model's forward pass saves spilled."""
    apply(module, _spilled, spiller=spiller)


def _spilled(applied: Applied, arguments: Any, options: Any) -> Any:
    import torch

    forward, spiller = applied.__wrapped__, applied.settings["spiller"]
    if not torch.is_grad_enabled() or not spiller.can_spill(torch, owner_of(applied)):
        return forward(*arguments, **options)
    call = spiller.begin(torch, owner_of(applied))
    with torch.autograd.graph.saved_tensors_hooks(call.pack, call.unpack):
        result = forward(*arguments, **options)
    call.returned()
    return result


class Away:
    """A storage whose bytes go to host memory and come back. Until it is released, it is the device's own."""

    def __init__(self, torch: Any, storage: Any, device: Any, host: Any, streams: Any) -> None:
        self._torch, self._device, self._host, self._streams = torch, device, host, streams
        self._here: Any = torch.empty(0, dtype=torch.uint8, device=device).set_(storage)
        self._again: Any = None
        self._left: Any = None
        self._arrived: Any = None
        if streams is None:
            host.copy_(self._here)
            return
        self._stream = torch.cuda.current_stream(device)
        streams[0].wait_stream(self._stream)
        streams[0].wait_stream(streams[1])  # who lay in this place on the host has been read
        with torch.cuda.stream(streams[0]):
            host.copy_(self._here, non_blocking=True)
            self._left = streams[0].record_event()

    def release(self) -> None:
        """The device's memory is used by others from here on, once the copy out is done."""
        if self._left is not None and self._here is not None:
            self._stream.wait_event(self._left)
        self._here = None

    def fetch(self) -> None:
        """Memory is taken again, and the copy back begins."""
        if self._here is not None or self._again is not None:
            return
        self._again = self._torch.empty(self._host.numel(), dtype=self._torch.uint8, device=self._device)
        if self._streams is None:
            self._again.copy_(self._host)
            return
        back = self._streams[1]
        self._stream = self._torch.cuda.current_stream(self._device)
        back.wait_stream(self._stream)
        back.wait_event(self._left)
        with self._torch.cuda.stream(back):
            self._again.copy_(self._host, non_blocking=True)
            self._arrived = back.record_event()

    def storage(self) -> Any:
        """The bytes on the device."""
        if self._here is not None:
            return self._here.untyped_storage()
        self.fetch()
        if self._arrived is not None:
            stream = self._torch.cuda.current_stream(self._device)
            stream.wait_event(self._arrived)
            if stream != self._stream:
                self._again.record_stream(stream)
        return self._again.untyped_storage()

    def __del__(self) -> None:
        # Nobody may have asked for it: its memory, here and on the host, is others' only after the copies.
        for event in (self._left, self._arrived):
            if event is not None:
                try:
                    self._stream.wait_event(event)
                except Exception:  # the interpreter ends
                    return


class Packed:
    """What is saved in place of a tensor: it or what it has become, and what is done when it is needed."""

    __slots__ = ("what", "view", "acts", "at")

    def __init__(self, what: Any, tensor: Any, acts: Any, at: Any = None) -> None:
        self.what, self.acts, self.at = what, acts, at
        self.view = (tensor.dtype, tensor.storage_offset(), tensor.shape, tensor.stride())


#: Of a tensor that the plan does not name.
_NOTHING: tuple[Any, Any] = (), ()


class Call:
    """One call of the model, and the backward pass through it."""

    def __init__(self, torch: Any, spiller: Spiller, kept: set[int], is_cuda: bool) -> None:
        self._torch, self.spiller, self._kept = torch, spiller, kept
        self._plain, self._is_cuda = torch.Tensor, is_cuda
        #: Of each kind that the plan names: tensors so far, and what is done with which.
        self._planned: dict[Any, list[Any]] = {kind: [0, acts] for kind, acts in spiller.acts_of_tensors.items()}
        #: What is away, by its storage: the storage, its version, and what it has become.
        self._shared: dict[int, tuple[Any, int, Any]] = {}
        self._victims: dict[int, Any] = {}

    def pack(self, tensor: Any) -> Any:
        """What is saved in place of a tensor. Most are not in the plan, and are to take little time."""
        if type(tensor) is not self._plain or tensor.nbytes < LEAST or tensor.is_cuda is not self._is_cuda:
            return tensor
        planned = self._planned.get((tensor.dtype, tensor.shape, tensor.stride()))
        now, later = _NOTHING
        if planned is not None:
            now, later = planned[1].get(planned[0], _NOTHING)
            planned[0] += 1
        away = self.known(tensor) if self._shared else None
        for act, victim in now:
            if act == OUT and away is None:
                away = self.go(victim, tensor)
        if now:
            self.perform(now)
        return tensor if away is None and not later else Packed(tensor if away is None else away, tensor, later)

    def go(self, victim: int, tensor: Any) -> Any:
        """Begins to spill a tensor's storage; None where it stays."""
        storage = tensor.untyped_storage()
        away = self.spiller.away(self._torch, victim, storage, tensor.device) if self._can_go(tensor, storage) else None
        if away is not None:
            self._victims[victim] = weakref.ref(away)
            self._shared[storage._cdata] = (weak(storage), tensor._version, weakref.ref(away))
        return away

    def known(self, tensor: Any) -> Any:
        """What the tensor's storage has become, if it is away."""
        known = self._shared.get(tensor.untyped_storage()._cdata)
        if known is None or known[0].expired() or known[1] != tensor._version:
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
        if type(packed) is not Packed:
            return packed
        if packed.acts:
            self.perform(packed.acts)
        if type(packed.what) is self._plain:
            return packed.what
        storage = packed.what.storage()
        kind, offset, shape, strides = packed.view
        return self._torch.empty(0, dtype=kind, device=storage.device).set_(storage, offset, shape, strides)

    def returned(self) -> None:
        """The forward pass is over."""
        self.spiller.returned(self)

    def spilled(self) -> int:
        """How many of the plan's victims are away, or were."""
        return len(self._victims)

    def perform(self, acts: Any) -> None:
        """Releases and fetches what a moment of the plan has."""
        for wanted in (RELEASE, FETCH):
            for act, victim in acts:
                away = self._victims[victim]() if act == wanted and victim in self._victims else None
                if away is not None:
                    self.spiller.release(away) if act == RELEASE else away.fetch()


def weak(storage: Any) -> Any:
    """Says whether a storage is gone, and keeps it not."""
    from torch.multiprocessing.reductions import StorageWeakRef

    return StorageWeakRef(storage)


class Spiller:
    """Spills by a plan."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        kinds = [_kind(text) for text in plan["kinds"]]
        #: What is done when a tensor is packed and when it is unpacked, by its kind and which of them it is; and when the forward pass is over.
        self.acts_of_tensors: dict[Any, dict[int, tuple[list[Any], list[Any]]]] = {}
        self._acts_at_return: list[tuple[int, int]] = []
        for moment, kind, count, act, victim in plan["acts"]:
            if moment == RETURNED:
                self._acts_at_return.append((act, victim))
            else:
                acts = self.acts_of_tensors.setdefault(kinds[kind], {}).setdefault(count, ([], []))
                acts[moment].append((act, victim))
        self._places: list[tuple[int, int]] = [(size, offset) for size, offset in plan["victims"]]
        is_inside = all(0 < size and 0 <= offset <= plan["host"] - size for size, offset in self._places)
        if not is_inside or not all(0 <= victim < len(self._places) for *_, victim in plan["acts"]):
            raise ValueError("a plan to spill is damaged: a tensor lies outside its host memory, or is not there")
        #: Who lies in the place of each victim, and the victims whose places overlap.
        self._lying: list[Any] = [None] * len(self._places)
        self._near = _overlapping(self._places)
        self._arena: Any = None
        self._streams: dict[Any, Any] = {}
        #: What is to be released yet.
        self._pending: dict[Away, None] = {}
        self._has_said = False

    def __deepcopy__(self, _memo: Any) -> Spiller:
        return type(self)(self.plan)

    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._places

    def can_spill(self, torch: Any, model: Any) -> bool:
        """Whether this call of the model is one to spill in: only the innermost pair of hooks acts, and it is the program's."""
        if self.is_idle():
            return False
        if not torch._C._autograd._saved_tensors_hooks_is_enabled() or _has_hooks(torch):
            self._say("the script has hooks of saved tensors around its model, which go first; nothing is spilled")
            return False
        return not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())

    def _say(self, text: str) -> None:
        if not self._has_said:
            self._has_said = True
            say(f"spill: {text}")

    #: What follows a call of the model.
    kind_of_call: type[Call] = Call

    def begin(self, torch: Any, model: Any) -> Call:
        """The model is called. What another call has still on the device is released."""
        for away in list(self._pending):
            self.release(away)
        tensors = [*model.parameters(), *model.buffers()]
        is_cuda = tensors[0].is_cuda if tensors else torch.cuda.is_initialized()
        kept = {getattr(one, "_local_tensor", one).untyped_storage().data_ptr() for one in tensors}
        return self.kind_of_call(torch, self, kept, is_cuda)

    def away(self, torch: Any, victim: int, storage: Any, device: Any) -> Away | None:
        """Begins to spill; None where its place on the host is taken, or of another size."""
        size, offset = self._places[victim]
        if storage.nbytes() != size or any(self._lying[near] is not None and self._lying[near]() is not None for near in self._near[victim]):
            self._say_differs()
            return None
        if self._arena is None:
            self._arena = self._taken(torch, device)
        away = Away(torch, storage, device, self._arena[offset : offset + size], self._streams_of(torch, device))
        self._lying[victim] = weakref.ref(away)
        self._pending[away] = None
        return away

    def _taken(self, torch: Any, device: Any) -> Any:
        """Host memory for all victims, page-locked, taken once."""
        arena = torch.empty(self.plan["host"], dtype=torch.uint8)
        if device.type == "cuda":
            failed = int(torch.cuda.cudart().cudaHostRegister(arena.data_ptr(), arena.numel(), 0))
            if failed:
                self._say(f"page-locked memory is refused (CUDA error {failed}; ulimit -l?): copies are slower")
            else:
                weakref.finalize(self, _unlock, torch, arena).atexit = False
        return arena

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

    def returned(self, call: Call) -> None:
        """The forward pass of a call is over."""
        call.perform(self._acts_at_return)
        if call.spilled() < len(self._places):
            self._say_differs()

    def _say_differs(self) -> None:
        self._say("the script's tensors are not those of the plan; what differs stays on the device")


def _has_hooks(torch: Any) -> bool:
    """Whether the program has hooks of saved tensors here; PyTorch says so from 2.5 on."""
    top: Any = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda _ignores_tracing: None)
    try:
        return top(False) is not None
    except TypeError:
        return top() is not None


def _unlock(torch: Any, arena: Any) -> None:
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaHostUnregister(arena.data_ptr())


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
