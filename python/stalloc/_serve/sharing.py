"""Tensors on handles of several lengths, for other processes: those can map handles of one length only, so PyTorch's own allocator serves
such a tensor from then on."""

from __future__ import annotations

from typing import Any

#: In the error by which the core refuses (crates/runtime/src/exports.rs).
_MIXED = "it lies on handles of several lengths;"

#: Keeps what it serves.
_pool: list[Any] = []


def install(torch: Any) -> None:
    """Have ``storage._share_cuda_()`` work with whatever a tensor lies on."""
    share = torch.UntypedStorage._share_cuda_

    def _share_cuda_(storage: Any, *arguments: Any) -> Any:
        try:
            return share(storage, *arguments)
        except RuntimeError as error:
            if _MIXED not in str(error) or not hasattr(torch.cuda, "use_mem_pool"):
                raise
        with torch.cuda.device(storage.device):
            _change_memory(torch, storage)
        return share(storage, *arguments)

    torch.UntypedStorage._share_cuda_ = _share_cuda_


def _change_memory(torch: Any, storage: Any) -> None:
    """Put a storage, with what is in it, into memory of PyTorch's own allocator. All tensors of it see its new address."""
    if not _pool:
        _pool.append(torch.cuda.MemPool())
    torch.cuda.synchronize()  # whatever stream uses it
    saved, size = storage.cpu(), storage.nbytes()  # the device may have no memory for a copy
    storage.resize_(0)
    try:
        with torch.cuda.use_mem_pool(_pool[0]):
            storage.resize_(size)
    except torch.OutOfMemoryError:
        storage.resize_(size)
        raise
    finally:
        storage.copy_(saved)
        torch.cuda.synchronize()
