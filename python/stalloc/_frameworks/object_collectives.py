"""Collectives of Python objects between the ranks of a dry run.

PyTorch sends objects as bytes through device memory, which a dry run does not compute: every rank would read zeros. So
the bytes go through the store in which the ranks met, and the device gets the memory that PyTorch would have asked of it.
"""

from __future__ import annotations

import functools
import io
import pickle
from typing import Any, Callable


class Objects:
    """The replacements, by the names of the functions of ``torch.distributed`` that they stand for."""

    def __init__(self, c10d: Any) -> None:
        self._c10d = c10d
        #: Collectives so far by group and, between two ranks only, by these.
        self._counts: dict[tuple[Any, ...], int] = {}

    def replacement(self, name: str) -> Callable[..., Any] | None:
        """What replaces a function, or None."""
        function = getattr(self, f"_{name}", None)
        original = getattr(self._c10d, name, None)
        if function is None or original is None:
            return None

        @functools.wraps(original)
        def called(*args: Any, group: Any = None, **options: Any) -> Any:
            # The group is named, or the last of the few that are usually given by position.
            args, group = _without_group(args, group, self._c10d)
            group = group if group is not None else self._c10d._get_default_group()
            if self._c10d._rank_not_in_group(group) or not _is_on_device(self._c10d, group):
                return original(*args, group=group, **options)
            options.pop("weights_only", None)
            return function(*args, group=group, **options)

        return called

    def _next(self, group: Any, *ranks: int) -> tuple[Any, str]:
        """The group's store, and a key for its next collective, the same on every rank."""
        store = self._c10d._world.pg_map[group][1]
        name = self._c10d._world.pg_names[group]
        place = (name, *ranks)
        count = self._counts[place] = self._counts.get(place, 0) + 1
        return store, "/".join(["stalloc", name, *map(str, ranks), str(count)])

    def _rank(self, group: Any, given: int | None, in_group: int | None) -> int:
        return in_group if in_group is not None else self._c10d.get_group_rank(group, given or 0)

    def _send(self, objects: Any) -> bytes:
        file = io.BytesIO()
        getattr(self._c10d, "_pickler", pickle.Pickler)(file).dump(objects)
        return file.getvalue()

    def _room(self, *sizes: int) -> None:
        """What PyTorch asks of the device: bytes."""
        import torch

        for size in sizes:
            torch.empty(size, dtype=torch.uint8, device="cuda")

    def _all_gather_object(self, object_list: list[Any], obj: Any, group: Any) -> None:
        store, key = self._next(group)
        size = group.size()
        data = self._send(obj)
        store.set(f"{key}/{group.rank()}", data)
        all_data = [store.get(f"{key}/{rank}") for rank in range(size)]
        self._room(len(data), 8, 8 * size, max(map(len, all_data)) * size)
        for index, data in enumerate(all_data):
            object_list[index] = pickle.loads(data)

    def _gather_object(
        self, obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None, *, group: Any, group_dst: int | None = None
    ) -> None:
        objects = [None] * group.size()
        self._all_gather_object(objects, obj, group)
        if object_gather_list and group.rank() == self._rank(group, dst, group_dst):
            object_gather_list[:] = objects

    def _broadcast_object_list(
        self, object_list: list[Any], src: int | None = None, device: Any = None, *, group: Any, group_src: int | None = None
    ) -> None:
        store, key = self._next(group)
        if group.rank() == self._rank(group, src, group_src):
            data = self._send(object_list)
            store.set(key, data)
        else:
            data = store.get(key)
            object_list[:] = pickle.loads(data)
        self._room(8 * len(object_list), len(data))

    def _scatter_object_list(
        self, output: list[Any], inputs: Any = None, src: int | None = None, *, group: Any, group_src: int | None = None
    ) -> None:
        objects = list(inputs or []) if group.rank() == self._rank(group, src, group_src) else [None] * group.size()
        self._broadcast_object_list(objects, src, group=group, group_src=group_src)
        output[0] = objects[group.rank()]

    def _send_object_list(self, object_list: Any, dst: int | None = None, *, group: Any, group_dst: int | None = None, **_: Any) -> None:
        store, key = self._next(group, group.rank(), self._rank(group, dst, group_dst))
        data = self._send(list(object_list))
        store.set(key, data)
        self._room(8 * len(object_list), len(data))

    def _recv_object_list(
        self, object_list: list[Any], src: int | None = None, *, group: Any, group_src: int | None = None, **_: Any
    ) -> int:
        source = self._rank(group, src, group_src)
        store, key = self._next(group, source, group.rank())
        data = store.get(key)
        object_list[:] = pickle.loads(data)
        self._room(8 * len(object_list), len(data))
        return int(self._c10d.get_global_rank(group, source))


def _without_group(args: tuple[Any, ...], group: Any, c10d: Any) -> tuple[tuple[Any, ...], Any]:
    """Positional arguments and the group, which may be the last of them."""
    if group is None and args and isinstance(args[-1], c10d.ProcessGroup):
        return args[:-1], args[-1]
    return args, group


def _is_on_device(c10d: Any, group: Any) -> bool:
    """Whether objects go through device memory in this group."""
    device = getattr(c10d, "_get_object_coll_device", None) or c10d._get_pg_default_device
    return str(device(group)).startswith("cuda")
