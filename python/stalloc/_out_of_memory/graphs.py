"""Autograd graphs, and what only they keep. No saved tensor is unpacked: that runs the program's hooks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stalloc._out_of_memory.objects import is_a
from stalloc._out_of_memory.world import World, optimized, own_parameters, used_by

#: Nodes of autograd graphs that are visited at most.
MOST_NODES = 300_000


@dataclass
class Graph:
    """An autograd graph that a tensor is the end of."""

    tensor: Any
    #: Where what it saves lies, with the bytes that it uses there.
    blocks: dict[int, int]
    #: The same of the tensors that it ends in, and of their gradients.
    leaves: dict[int, int]
    #: How often one parameter takes part: in as many forward passes, or steps of a recurrent network.
    passes: int
    #: Whether it ends in no parameter that an optimizer has, while there are optimizers.
    is_untrained: bool
    #: Whether it ends in parameters and in what is none: something is differentiated by its input.
    is_of_input: bool


#: By the class of a node the names of what it saves.
_saved: dict[Any, tuple[str, ...]] = {}


def _saved_names(kind: Any) -> tuple[str, ...]:
    if kind not in _saved:
        _saved[kind] = tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))
    return _saved[kind]


def _saved_by(world: World, node: Any) -> list[tuple[Any, int]]:
    """The tensors that a node saves, and where they lie."""
    found = []
    for name in _saved_names(type(node)):
        try:
            saved = getattr(node, name)
            for one in saved if type(saved) in (tuple, list) else (saved,):
                data = getattr(one, "data", None)
                if world.is_tensor(data) and (address := world.address(data)) is not None:
                    found.append((data, address))
        except Exception:  # noqa: S110 - freed already, or of a kind that has none
            pass
    return found


def _is_leaf(node: Any) -> bool:
    return bool(node.name().endswith("AccumulateGrad"))


def _see_remade(world: World, nodes: set[Any]) -> None:
    """Remember what is made of parameters alone and kept for the backward pass, such as a weight with a delta: no batch makes it smaller."""
    read = world.is_tensor.read
    parameters = [one for root in world.roots for one in own_parameters(root) if world.is_tensor(one)]
    own = {world.address(one) for one in parameters}
    shapes = {tuple(read(one, "shape"))[::order] for one in parameters for order in (1, -1)}
    made: dict[Any, tuple[int, ...]] = {}
    for count, node in enumerate(sorted(nodes, key=lambda one: one._sequence_nr())):
        if count % 256 == 255 and world.is_late:
            break
        above = [function for function, _ in node.next_functions]
        result, saved = tuple(node._input_metadata[0].shape), [(address, tuple(read(data, "shape"))) for data, address in _saved_by(world, node)]
        of_weights = {made[one] for one in above if one in made}
        known = {result, *of_weights}
        # What needs no gradient is a weight too where the result is as large as one, else a batch; indices are saved, and none.
        is_frozen = result in shapes and "mm" not in node.name()
        is_made = any(above) and all(one in made or (is_frozen if one is None else _is_leaf(one) and world.address(one.variable) in own) for one in above)
        if is_made and all(address in own or shape in known for address, shape in saved):
            made[node] = result
            of_weights = known
        world.remade.update(address for address, shape in saved if address not in own and shape in of_weights)


def visit(world: World, roots: list[Any], seen: set[Any], used: dict[int, int]) -> dict[Any, int]:
    """Visit the nodes of graphs, once each; ``used`` gets where what they save lies, with the bytes of it. How often leaves are used."""
    waiting = list(roots)
    leaves: dict[Any, int] = {}
    while waiting and len(seen) < MOST_NODES:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if len(seen) % 256 == 0 and world.is_late:
            break
        for data, address in _saved_by(world, node):
            world.see_width(data, address)
            used[address] = used.get(address, 0) + world.is_tensor.bytes_of(data)
        for following, _ in node.next_functions:
            if following is None:
                continue
            if _is_leaf(following):
                leaves[following] = leaves.get(following, 0) + 1
            else:
                waiting.append(following)
    return leaves


def autograd_graphs(world: World, graphs: list[Graph]) -> None:
    """The autograd graphs, each with what only it saves; of two that share nodes the later one has them."""
    ends = [(tensor, node) for tensors in world.tensors.values() for tensor in tensors if (node := world.is_tensor.read(tensor, "grad_fn")) is not None]
    ends.sort(key=lambda one: -one[1]._sequence_nr() if hasattr(one[1], "_sequence_nr") else 0)
    seen: set[Any] = set()
    trained = {id(one) for optimizer in world.optimizers for one in optimized(world, optimizer)}
    for tensor, node in ends:
        if node in seen or world.is_late:
            continue
        with world.apart:
            used: dict[int, int] = {}
            leaves = visit(world, [node], seen, used)
            is_untrained = bool(trained and leaves) and all(id(leaf.variable) not in trained for leaf in leaves)
            ends_in = used_by(world, (leaf.variable for leaf in leaves))
            is_parameter = {is_a(leaf.variable, world.torch.nn.Parameter) for leaf in leaves}
            graphs.append(Graph(tensor, used, ends_in, max(leaves.values(), default=0), is_untrained, len(is_parameter) == 2))
    with world.apart:
        _see_remade(world, seen)


def operation_of(node: Any) -> str:
    """`LayerNorm` of `NativeLayerNormBackward0`."""
    name = str(node.name()).split("::")[-1]
    name = name.removeprefix("torch").split("Backward")[0].removeprefix("Native")
    return name or "unknown"
