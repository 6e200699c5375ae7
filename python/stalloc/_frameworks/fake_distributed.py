"""One rank of a distributed job, without the others.

Process groups become PyTorch's `fake` ones, whatever back end the program asks for: collectives return at once and
leave their outputs as they would be if all ranks held the same. Collectives of Python objects, which no `fake` group
has, get the same meaning here. A program that asks for the back end of a group is told what it asked for.
"""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, Callable

from stalloc._common import imports
from stalloc._frameworks import fake_reducer, unfinished_work
from stalloc._frameworks.object_collectives import Objects


def install(distributed: Any) -> None:
    """Replace what reaches other ranks in ``torch.distributed``."""
    if not distributed.is_available():
        return
    from torch.distributed import distributed_c10d as c10d

    rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    is_wanted = "STALLOC_TRACE_ALONE" in os.environ
    init_process_group, new_group, get_backend = c10d.init_process_group, c10d.new_group, c10d.get_backend
    is_alone = False
    #: The back end that the program asked for, by group.
    asked_for: dict[Any, Any] = {}

    def init_alone(*args: Any, **options: Any) -> None:
        nonlocal is_alone
        if not is_wanted and max(world_size, options.get("world_size", 1)) > 1:
            init_process_group(*args, **options)  # the program starts its ranks itself
            return
        from torch.testing._internal.distributed.fake_pg import FakeStore

        is_alone = True
        init_process_group("fake", rank=rank, world_size=world_size, store=FakeStore())
        asked_for[c10d._get_default_group()] = args[0] if args else options.get("backend")
        c10d.ProcessGroup.name = name_alone

    def new_group_alone(ranks: Any = None, timeout: Any = None, backend: Any = None, *_args: Any, **options: Any) -> Any:
        kept = ("use_local_synchronization", "group_desc", "sort_ranks")
        group = new_group(ranks, **{name: value for name, value in options.items() if name in kept})
        asked_for[group] = backend or asked_for.get(c10d._get_default_group())
        return group

    def told(used: str, group: Any, caller: Any) -> str:
        # PyTorch's own modules know of `fake` groups; programs do not, and look `nccl` up in tables of theirs.
        if caller.f_globals.get("__name__", "").startswith("torch."):
            return used
        asked = str(asked_for.get(group if group is not None else c10d._get_default_group())).lower()
        return asked if asked in ("nccl", "gloo") else used

    def get_backend_alone(group: Any = None) -> str:
        return told(get_backend(group), group, sys._getframe(2))

    own_name = c10d.ProcessGroup.name

    def name_alone(group: Any) -> str:
        return told(own_name(group), group, sys._getframe(1))

    def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
        object_list[:] = [obj] * c10d.get_world_size(group)

    def gather_object(obj: Any, object_gather_list: list[Any] | None = None, *args: Any, **options: Any) -> None:
        if object_gather_list:
            object_gather_list[:] = [obj] * len(object_gather_list)

    def scatter_object_list(output: list[Any], inputs: list[Any] | None = None, *args: Any, **options: Any) -> None:
        if inputs:
            output[0] = inputs[min(rank, len(inputs) - 1)]

    all_gather, all_reduce, reduce_scatter = c10d.all_gather, c10d.all_reduce, c10d.reduce_scatter

    def all_reduce_alone(tensor: Any, *args: Any, **options: Any) -> Any:
        work = all_reduce(tensor, *args, **options)
        return None if work is None else fake_reducer.Work(work, tensor)

    def all_gather_alone(tensor_list: list[Any], tensor: Any, group: Any = None, async_op: bool = False) -> Any:
        # NCCL takes tensors of different sizes; a `fake` group copies ours into each and refuses.
        if all(other.shape == tensor.shape for other in tensor_list):
            _copies = flat(tensor_list)
            return all_gather(tensor_list, tensor, group, async_op)
        return c10d.broadcast(tensor, rank, group, async_op)

    def reduce_scatter_alone(output: Any, input_list: list[Any], *args: Any, **options: Any) -> Any:
        _copies = flat(input_list) if all(other.shape == output.shape for other in input_list) else None
        return reduce_scatter(output, input_list, *args, **options)

    batch_isend_irecv = c10d.batch_isend_irecv

    def batch_alone(p2p_op_list: list[Any]) -> list[Any]:
        try:
            works: list[Any] = batch_isend_irecv(p2p_op_list)
        except RuntimeError:  # a `fake` group of an older PyTorch starts no batch
            c10d._world.pg_coalesce_state.clear()
            works = [one.op(one.tensor, one.peer, one.group) for one in p2p_op_list]
        return [work for work in works if work is not None]

    def nothing(*_args: Any, **_options: Any) -> None:
        """The objects of a broadcast stay what they are here; nobody has to be waited for."""

    replacements: dict[str, Callable[..., Any]] = {
        "new_group": new_group_alone,
        "get_backend": get_backend_alone,
        "all_gather": all_gather_alone,
        "all_reduce": all_reduce_alone,
        "reduce_scatter": reduce_scatter_alone,
        "batch_isend_irecv": batch_alone,
        "all_gather_object": all_gather_object,
        "gather_object": gather_object,
        "scatter_object_list": scatter_object_list,
        "broadcast_object_list": nothing,
        "send_object_list": nothing,
        "barrier": nothing,
        "monitored_barrier": nothing,
    }

    def either(original: Callable[..., Any], replacement: Callable[..., Any], between: Any = None) -> Callable[..., Any]:
        @functools.wraps(original)
        def called(*args: Any, **options: Any) -> Any:
            return (replacement if is_alone else between or original)(*args, **options)

        return called

    # Ranks that run side by side exchange their objects, if there is no device to do it.
    objects = Objects(c10d) if os.environ.get("STALLOC_DRYRUN_GPU") else None
    between = {name: objects.replacement(name) if objects else None for name in (*replacements, "recv_object_list")}

    # Older versions of PyTorch have no lists of objects to send.
    functions = {
        name: either(getattr(c10d, name), function, between[name]) for name, function in replacements.items() if hasattr(c10d, name)
    }
    if between["recv_object_list"]:
        functions["recv_object_list"] = either(c10d.recv_object_list, c10d.recv_object_list, between["recv_object_list"])
    if os.environ.get("STALLOC_DRYRUN_GPU") and unfinished_work.is_held():
        unfinished = unfinished_work.Unfinished(c10d)
        for name in unfinished_work.COLLECTIVES:
            collective = functions.get(name, getattr(c10d, name))
            functions[name] = either(collective, unfinished.holding(collective))
    for name, function in {"init_process_group": init_alone, **functions}.items():
        setattr(c10d, name, function)
        setattr(distributed, name, function)

    def in_parallel(module: Any) -> None:
        # DistributedDataParallel compares its parameters with those of other ranks: there are none to differ from, or what
        # they send is not computed.
        name = "_verify_param_shape_across_processes"
        setattr(module, name, either(getattr(module, name), nothing, nothing if objects else None))
        fake_reducer.install(module, lambda: is_alone)

    imports.after("torch.nn.parallel.distributed", in_parallel)


def flat(tensors: list[Any]) -> Any:
    """The one tensor in which NCCL's back end keeps equally large ones while it works on them; a `fake` group makes none."""
    if not tensors or not tensors[0].is_cuda:
        return None
    return tensors[0].new_empty((len(tensors), *tensors[0].shape))
