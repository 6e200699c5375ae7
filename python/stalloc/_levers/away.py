"""Storages that wait in host memory."""

from __future__ import annotations

import weakref
from contextlib import suppress
from typing import Any

from stalloc import _native


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

    def leave(self, device: int | None) -> bool:
        """It is on this device no more; false if it was not."""
        if self._device.index != device or self._here is None and self._again is None:
            return False
        self._wait()
        self._here = self._again = self._arrived = None
        return True

    def fetch(self) -> Any:
        """Memory is taken again, and the copy back begins."""
        again = self._again
        if self._here is not None or again is not None:
            return again
        again = self._torch.empty(self._host.numel(), dtype=self._torch.uint8, device=self._device)
        if self._streams is None:
            again.copy_(self._host)
        else:
            back = self._streams[1]
            self._stream = self._torch.cuda.current_stream(self._device)
            back.wait_stream(self._stream)
            back.wait_event(self._left)
            with self._torch.cuda.stream(back):
                again.copy_(self._host, non_blocking=True)
                self._arrived = back.record_event()
        self._again = again
        return again

    def storage(self) -> Any:
        """The bytes on the device."""
        # Where memory runs out meanwhile, it leaves.
        bytes_ = self._here
        if bytes_ is None:
            bytes_, arrived = self.fetch(), self._arrived
            if arrived is not None:
                stream = self._torch.cuda.current_stream(self._device)
                stream.wait_event(arrived)
                if stream != self._stream:
                    bytes_.record_stream(stream)
        return bytes_.untyped_storage()

    def _wait(self) -> None:
        for event in (self._left, self._arrived):
            if event is not None:
                self._stream.wait_event(event)

    def __del__(self) -> None:
        # Nobody may have asked for it: its memory, here and on the host, is others' only after the copies.
        with suppress(Exception):  # the interpreter ends
            self._wait()


class Version:
    """How often a tensor and its views had been changed. Parts of a storage that are no views of one tensor, as a GRU's, are counted each by itself."""

    def __init__(self, tensor: Any) -> None:
        self._number, self._counter = tensor._version, tensor.detach()
        self._counter.data = tensor.new_empty(0)

    def is_of(self, torch: Any, tensor: Any) -> bool:
        """Whether nothing has changed the tensor since, as far as its own count goes."""
        if not tensor._version == self._counter._version == self._number:
            return False
        with torch.autograd._unsafe_preserve_version_counter(self._counter):
            torch.autograd.graph.increment_version(self._counter)
            return bool(tensor._version != self._number)


def weak(storage: Any) -> Any:
    """Says whether a storage is gone, and keeps it not."""
    from torch.multiprocessing.reductions import StorageWeakRef

    return StorageWeakRef(storage)


def page_locked(torch: Any, size: int, device: Any, owner: Any, say: Any) -> Any:
    """Host memory that is page-locked as long as its owner lives, if that can be had."""
    left = _native.host_memory_left()
    if left is not None and left < size:
        raise MemoryError
    arena = torch.empty(size, dtype=torch.uint8)
    if device.type == "cuda":
        failed = int(torch.cuda.cudart().cudaHostRegister(arena.data_ptr(), arena.numel(), 0))
        if failed:
            say(f"page-locked memory is refused (CUDA error {failed}; ulimit -l?): copies are slower")
        else:
            weakref.finalize(owner, _unlock, torch, arena).atexit = False
    return arena


def _unlock(torch: Any, arena: Any) -> None:
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaHostUnregister(arena.data_ptr())
