"""One rank of a distributed job, without the others.

Process groups become PyTorch's `fake` ones, whatever back end the program asks for: collectives return at once and
leave their outputs as they would be if all ranks held the same. Collectives of Python objects, which no `fake` group
has, get the same meaning here.
"""

from __future__ import annotations

import os
from typing import Any


def install(distributed: Any) -> None:
    """Replace what reaches other ranks in ``torch.distributed``."""
    if not distributed.is_available():
        return
    from torch.distributed import distributed_c10d as c10d

    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    init_process_group, new_group = c10d.init_process_group, c10d.new_group

    def init_alone(*_args: Any, **_options: Any) -> None:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())

    def new_group_alone(ranks: Any = None, *_args: Any, **options: Any) -> Any:
        kept = ("use_local_synchronization", "group_desc", "sort_ranks")
        return new_group(ranks, **{name: value for name, value in options.items() if name in kept})

    def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
        object_list[:] = [obj] * c10d.get_world_size(group)

    def gather_object(obj: Any, object_gather_list: list[Any] | None = None, *args: Any, **options: Any) -> None:
        if object_gather_list:
            object_gather_list[:] = [obj] * len(object_gather_list)

    def scatter_object_list(output: list[Any], inputs: list[Any] | None = None, *args: Any, **options: Any) -> None:
        if inputs:
            output[0] = inputs[min(rank, len(inputs) - 1)]

    def nothing(*_args: Any, **_options: Any) -> None:
        """The objects of a broadcast stay what they are here; nobody has to be waited for."""

    replacements = {
        "init_process_group": init_alone,
        "new_group": new_group_alone,
        "all_gather_object": all_gather_object,
        "gather_object": gather_object,
        "scatter_object_list": scatter_object_list,
        "broadcast_object_list": nothing,
        "send_object_list": nothing,
        "barrier": nothing,
        "monitored_barrier": nothing,
    }
    for name, replacement in replacements.items():
        for module in (c10d, distributed):
            if hasattr(module, name):
                setattr(module, name, replacement)
    _trust_ddp()


def _trust_ddp() -> None:
    """DistributedDataParallel compares its parameters with those of other ranks: there are none to differ from."""
    from torch.distributed import utils

    def verified(*_args: Any, **_options: Any) -> None: ...

    utils._verify_param_shape_across_processes = verified  # type: ignore[assignment]
