"""Who holds the GPU's memory: the Python objects that refer to tensors, named as a person would name them. Text and numbers, no objects."""

from __future__ import annotations

import gc
import sys
import types
from collections import Counter
from typing import Any

from stalloc._out_of_memory.claims import MOST_ADDRESSES, Claims
from stalloc._out_of_memory.graphs import Graph, autograd_graphs, operation_of, visit
from stalloc._out_of_memory.kinds import Kind
from stalloc._out_of_memory.names import GARBAGE, MANY_MODELS, Name, Names, are_garbage
from stalloc._out_of_memory.objects import CONTAINERS, attributes, cause_of, context_of, ended_frames, is_a, items, keys, length, locals_of, name_of, named
from stalloc._out_of_memory.world import World, content_of, gradients, line_of, optimized, submodules, tensors_in, used_by

#: What is said of a container that is being made, or was given to a call.
NAMELESS = " without a name (of a comprehension, or that a `for` goes through)"


def find(world: World, sizes: dict[int, int], frames: list[types.FrameType]) -> Claims:
    """The holders of blocks. ``sizes``: bytes of each live block by address; ``frames``: what runs, innermost first."""
    claims = Claims(sizes)
    with world.apart:
        _by_roles(world, claims)
    with world.apart:
        _by_exceptions(world, claims, frames)
    graphs: list[Graph] = []
    with world.apart:
        autograd_graphs(world, graphs)
    with world.apart:
        _by_circles(world, claims)
    with world.apart:
        _by_names(world, claims, frames, graphs)
    with world.apart:
        for address, tensors in world.tensors.items():
            for tensor in tensors:
                world.see_width(tensor, address)
    with world.apart:
        left = [address for address in world.tensors if address in claims.sizes and address not in claims.of]
        for one in _nameless(world, left):
            claims.claim(Kind.LOCAL, f"a {name_of(type(one))}{NAMELESS}", filter(None, map(world.address, tensors_in(one, world, objects=False))))
        claims.claim(Kind.LOCAL, "a local variable, or an operation that runs", left)
    return claims


def _nameless(world: World, left: list[int]) -> list[Any]:
    """The container that has most of the tensors that nothing names, if it has many."""
    tensors = [tensor for address in left for tensor in world.tensors[address]]
    near = [one for one in gc.get_referrers(*tensors[len(tensors) // 2 :][:1]) if is_a(one, *CONTAINERS)]
    found = [one for one in [*near, *gc.get_referrers(*near)] if is_a(one, *CONTAINERS) and not is_one_of(one, [tensors, near, world.tensors])]
    most: Any = max(found, key=length, default=[])
    has = {id(one) for one in tensors_in(most, world, objects=False)}.intersection(map(id, tensors))
    return [most] if len(has) >= MANY_MODELS and 2 * len(has) > len(tensors) else []


def _by_roles(world: World, claims: Claims, many: bool = False) -> None:
    """Parameters, buffers, gradients and optimizer states; ``many``: of models of which there are too many to be trained together."""
    often = Counter(id(type(root)) for root in world.roots)
    alike = [things for kind, things in world.by_type.items() if many and often[kind] >= MANY_MODELS]
    waiting = {id(type(things[0])) for things in alike if are_garbage(world, things)}
    for root in world.roots:
        if (often[id(type(root))] >= MANY_MODELS) == many:
            with world.apart:
                _by_module(world, claims, root, often[id(type(root))] if many else 0, id(type(root)) in waiting)
    for optimizer in world.optimizers if (len(world.optimizers) >= MANY_MODELS) == many else ():
        with world.apart:
            _by_optimizer(world, claims, optimizer, many)


def _by_module(world: World, claims: Claims, root: Any, many: int, is_garbage: bool) -> None:
    each = (f" ({many} models)" if many else "") + (GARBAGE if is_garbage else "")
    of_many = Kind.GARBAGE if is_garbage else Kind.MODELS
    addresses: list[int | None] = []
    buffers: dict[str, list[int | None]] = {}
    tensors: list[Any] = []
    for module in submodules(root):
        own = attributes(module)
        for name in ("_parameters", "_buffers"):
            for variable, tensor in named(own.get(name)).items():
                if world.is_tensor(tensor):
                    of = addresses if name == "_parameters" else buffers.setdefault(f"buffer `{variable}` of `{name_of(type(module))}`", [])
                    of.append(world.address(tensor))
                    tensors.append(tensor)
    kind = name_of(type(root))
    claims.claim(of_many if many else Kind.PARAMETERS, f"parameters of `{kind}`{each}", filter(None, addresses))
    for label, places in buffers.items():
        claims.claim(of_many if many else Kind.BUFFER, label, filter(None, places))
    claims.claim(of_many if many else Kind.GRADIENTS, f"gradients of `{kind}`{each}", gradients(world, tensors))


def _by_optimizer(world: World, claims: Claims, optimizer: Any, many: bool) -> None:
    name = name_of(type(optimizer))
    kinds = (Kind.MODELS,) * 3 if many else (Kind.OPTIMIZER_STATES, Kind.PARAMETERS, Kind.GRADIENTS)
    states: Any = attributes(optimizer).get("state")
    addresses = [address for state in items(states) for tensor in tensors_in(state, world) if (address := world.address(tensor))]
    has_state = {id(key) for key in keys(states)} if addresses else set()
    if not has_state.isdisjoint(world.has_state):
        claims.claim(Kind.OTHER_STATES, f"states of another {name} for the same parameters", addresses)
    world.has_state |= has_state
    claims.claim(kinds[0], f"optimizer states of {name}", addresses)
    held = optimized(world, optimizer)
    claims.claim(kinds[1], f"parameters of {name}", filter(None, map(world.address, held)))
    claims.claim(kinds[2], f"gradients of {name}'s parameters", gradients(world, held))


def handled() -> list[BaseException]:
    """The exceptions that are being handled: each holds the frames it came through."""
    found: list[BaseException] = []
    error = sys.exc_info()[1]
    while error is not None and not is_one_of(error, found) and len(found) < 8:
        found.append(error)
        context = context_of(error)
        error = cause_of(error) if context is None else context
    return found


def is_one_of(thing: Any, things: list[Any]) -> bool:
    """Whether a list has the very object."""
    return any(thing is one for one in things)


def _by_exceptions(world: World, claims: Claims, frames: list[types.FrameType]) -> None:
    """What the frames of an exception that is handled hold."""
    running = {id(frame) for frame in frames}
    now = handled()
    kept = [error for error in world.exceptions if not is_one_of(error, now)]
    alike = Counter(id(type(error)) for error in kept)
    for error in [*now, *kept]:
        kind, count = name_of(type(error)), 0 if is_one_of(error, now) else alike[id(type(error))]
        which = f"{'`sys.last_value`, an exception' if error is getattr(sys, 'last_value', None) else f'a `{kind}`'} that is kept"
        for frame, line in ended_frames(error):
            if id(frame) not in running and not world.is_late:
                with world.apart:
                    place = line_of(frame.f_code, line)
                    name = f"{which if count else 'the exception being handled'} (traceback frame {place})"
                    claims.claim(Kind.KEPT_EXCEPTION if count else Kind.EXCEPTION, name + (f", one of {count}" if count >= MANY_MODELS else ""), _of_frame(world, frame), place)


def _of_frame(world: World, frame: types.FrameType) -> list[int]:
    """What a frame that has ended holds: what a look at its locals copies goes when it goes."""
    tensors = list(tensors_in(locals_of(frame), world, depth=4))
    used = used_by(world, tensors)
    nodes = [node for tensor in tensors if (node := world.is_tensor.read(tensor, "grad_fn")) is not None]
    visit(world, nodes, set(), used)
    return list(used)


def _by_circles(world: World, claims: Claims) -> None:
    """Parameters of no model that still lives, whose gradients have a graph: it leads back to them, so that all of it stays."""
    read = world.is_tensor.read
    found: dict[int, int] = {}
    for tensor in [tensor for tensors in world.tensors.values() for tensor in tensors if read(tensor, "is_leaf") and read(tensor, "requires_grad")]:
        grad = read(tensor, "grad")
        node = None if grad is None else read(grad, "grad_fn")
        address = world.address(tensor)
        if node is not None and address not in claims.of and not world.is_late:
            found |= used_by(world, [tensor])
            visit(world, [node], set(), found)
    claims.claim(Kind.GRADIENT_CYCLE, "circles of a parameter, its `.grad` and that gradient's graph", list(found))
    kept: dict[int, int] = {}
    for node in [node for tensors in world.tensors.values() for tensor in tensors if (node := read(tensor, "grad_fn")) is not None]:
        own = [one for one in attributes(node).values() if world.is_tensor(one) and read(one, "grad_fn") is node]
        if own and not world.is_late:
            kept |= used_by(world, own)
            visit(world, [node], set(), kept)
    claims.claim(Kind.FUNCTION_CYCLE, "functions of autograd that keep their own result", list(kept))


def _by_names(world: World, claims: Claims, frames: list[types.FrameType], graphs: list[Graph]) -> None:
    """What variables, attributes and closures hold, and graphs by the name of the tensor that ends them."""
    names = Names(world, frames)
    names.look()
    containers = [name for name in names.containers if is_a(name.values[0], *CONTAINERS)]
    for name in (one for one in containers if not one.is_each):
        _claim_name(world, claims, name, inside=False)
    # What is in objects inside of containers is of those that have most.
    whole: set[int] = set()
    for name in sorted(containers, key=lambda one: -sum(map(length, one.values))):
        if not world.is_late and not name.is_each and sum(map(length, name.values)) >= MANY_MODELS:
            _claim_name(world, claims, name)
            whole.add(id(name))
    _claim_graphs(world, claims, graphs, names)
    for name in sorted((one for one in [*names.containers, *names.tensors] if id(one) not in whole), key=lambda one: one.is_each):
        _claim_name(world, claims, name)
    _by_roles(world, claims, many=True)
    _claim_graphs(world, claims, graphs, names, leaves=True)


def _claim_name(world: World, claims: Claims, name: Name, inside: bool = True) -> None:
    holder = claims.claim(name.kind, name.text, _addresses(world, name.values, inside), name.line)
    if holder is not None:
        holder.is_bounded, holder.is_each, holder.is_mapping, holder.owner = name.is_bounded, name.is_each, name.is_mapping, name.owner
        holder.content = content_of(name.values[0], world.is_tensor)


def _claim_graphs(world: World, claims: Claims, graphs: list[Graph], names: Names, leaves: bool = False) -> None:
    """What graphs save, or the tensors that they end in; graphs whose ends one container holds are one holder."""
    by_end: dict[int, Name] = {}
    for name in [*names.tensors, *names.containers]:
        for tensor in tensors_in(name.values, world):
            if world.is_tensor.read(tensor, "grad_fn") is not None:
                by_end[id(tensor)] = name
    size = claims.sizes.get
    # A view of what is much larger keeps it, but does not need it: whoever names it is the holder.
    used_of = [{address: used for address, used in (graph.leaves if leaves else graph.blocks).items() if used * 2 > size(address, 0)} for graph in graphs]
    for graph, blocks in sorted(zip(graphs, used_of), key=lambda one: -sum(size(address, 0) for address in one[1])):
        found = by_end.get(id(graph.tensor))
        kind = Kind.GRAPH_OF_MANY if graph.passes >= 3 else Kind.GRAPH
        if found is not None and not found.is_tensor:
            holder = claims.claim(Kind.GRAPH_OF_MANY, f"autograd graphs of {found.text}", blocks, found.line)
        elif found is not None:
            holder = claims.claim(kind, f"autograd graph of {found.variable}, {found.line}", blocks, found.line)
        else:
            made_by = operation_of(world.is_tensor.read(graph.tensor, "grad_fn"))
            holder = claims.claim(kind, f"autograd graph of a result of `{made_by}`", blocks)
            end = world.address(graph.tensor)
            if holder is not None and end is not None and len(holder.ends) < MOST_ADDRESSES:
                holder.ends.append(end)
        if holder is not None:
            holder.is_untrained = graph.is_untrained
            holder.is_of_input |= graph.is_of_input


def _addresses(world: World, values: list[Any], inside: bool = True) -> dict[int, int]:
    """Where tensors lie, with the bytes that they use there; ``inside``: also those in objects."""
    return used_by(world, (tensor for value in values for tensor in tensors_in(value, world, objects=inside)))
