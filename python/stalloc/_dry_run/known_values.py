"""Small integers and truth values, computed for real in a dry run.

The stand-in CUDA runs no kernels, but it keeps the bytes that a program copies to the device. While all inputs of an
operation are small and known, the operation is computed here, on the host, and the stand-in is told the result: lengths, masks,
counts and indices that a program derives from its data are then what they are on a GPU, and so is what it reads back.
The native side (``crates/python/src/observer``) sees every operation and calls us for the few that matter.

What a router chooses from unknown logits, and random integers, are drawn: as likely as on a GPU, and the same in
every dry run. Reads that follow from them are listed as drawn.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
from typing import Any, Iterator, Optional, Sequence

from stalloc import _native
from stalloc._dry_run import handlers, later, triton_kernels, unknown_fractions

_OTHER, _COMPUTED, _COUNTED, _DRAWN, _CHECK, _MADE, _ASSUMED, _COPIED, _READ, _RANDOM_NUMBERS, _COUNTED_ROWS, _PLACED, _COALESCED = range(13)

#: A tensor as the native side has it: number of its type, sizes, strides, bytes (none: they do not matter).
Described = tuple[int, Sequence[int], Sequence[int], Optional[bytes]]
Output = tuple[int, list[int], Any]
#: In place of an output that stays unknown.
UNKNOWN: Output = (255, [], b"")

#: Operations that are computed, by the name that all their variants share: as far as they do not end with "_" or "out".
_COMPUTED_NAMES = frozenset(
    "add sub rsub mul div floor_divide remainder fmod neg abs sign pow square sqrt reciprocal exp log log2 ceil floor round trunc"
    " eq ne lt le gt ge maximum minimum clamp clamp_min clamp_max where masked_fill logical_and logical_or logical_xor logical_not"
    " bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift __lshift__ __rshift__ __ilshift__"
    " __irshift__ isin isnan isinf sum mean prod all any max min amax amin aminmax argmax argmin cumsum cumprod cummax cummin"
    " count_nonzero nansum bincount histc sort topk searchsorted bucketize median index _unsafe_index index_put _index_put_impl"
    " kthvalue sigmoid _softmax _log_softmax std var index_select index_add index_copy index_fill gather scatter scatter_add scatter_reduce take cat tril triu flip roll arange"
    " linspace eye tril_indices triu_indices repeat_interleave masked_scatter copy fill zero _amp_update_scale".split()
)
#: Those that read from the device how many elements they found, before they make their output.
_COUNTED_NAMES = frozenset("nonzero masked_select _unique _unique2 unique_dim unique_consecutive unique_dim_consecutive".split())
#: Those that choose: what they choose of unknown values is drawn.
_CHOOSING = frozenset("topk sort argmax argmin max min".split())
#: Those that write some elements, often all: what was there before may not matter.
_PLACING = frozenset("scatter index_put _index_put_impl index_copy".split())
#: Those that compare: a fraction that is not known is small, as where the program reads it.
_COMPARING = frozenset("eq ne lt le gt ge".split())
#: Those that draw, without an input.
_RANDOM = frozenset("randint randperm random multinomial".split())
#: Writes to inputs that are not declared.
_UNDECLARED = {"aten::native_batch_norm": 0b11000, "aten::cudnn_batch_norm": 0b11000, "aten::miopen_batch_norm": 0b11000}
#: Declared writes that are left out: gradients are finite, as on a GPU in nearly every step, so that no step is skipped and a loss's scale stays.
_LEFT_OUT = {"aten::_amp_foreach_non_finite_check_and_unscale_": 0b10}
#: Inputs that are written and not read, in operations whose first input is not an output alone.
_OVERWRITING = frozenset("copy fill zero random".split())
#: Elements of the largest result that is computed at once.
_LARGEST = 1 << 20
#: Bytes of the largest that is kept, as the stand-in keeps them.
_MOST_BYTES = 32 << 20
#: The versions of PyTorch that may be observed. How PyTorch passes a callback is the one thing that cannot be looked up at run time.
_OLDEST, _NEWEST = (2, 6), (2, 15)

#: The operations that are computed, by the number that the native side has for each.
_operations: dict[int, _Operation] = {}


def install(torch: Any) -> None:
    """Observe the operations of this process from now on, where this PyTorch has what it takes. CUDA has been initialised."""
    if os.environ.get("STALLOC_DRYRUN_VALUES") == "0":
        return
    try:
        version = tuple(int(part) for part in torch.__version__.split(".")[:2])
        if not _OLDEST <= version <= _NEWEST:
            raise RuntimeError(f"not known to be right for PyTorch {torch.__version__}")
        _install(torch)
    except (AttributeError, RuntimeError, TypeError, ValueError) as reason:
        _native.log(f"small integers are not computed: {reason}")


def _install(torch: Any) -> None:
    base = torch.zeros(4099, dtype=torch.int16, device="cpu")
    one = base.as_strided((3, 5, 7), (701, 101, 13), 23)
    two = torch.zeros(5003, dtype=torch.float64, device="cpu").as_strided((11, 2, 9), (401, 211, 17), 29)
    probes = [
        (t._cdata, list(t.shape), list(t.stride()), t.storage_offset(), kind, _keys(torch, t), storage.data_ptr(), storage.nbytes())
        for t, kind, storage in ((one, 2, base.untyped_storage()), (two, 7, two.untyped_storage()))
    ]
    target, source = torch.zeros(1, device="cpu"), torch.zeros(1, device="cpu")
    index = torch.zeros(1, dtype=torch.int64, device="cpu")

    def call() -> None:
        with torch.no_grad():
            target.scatter_reduce_(0, index, source, "sum", include_self=True)

    # Empty ones: nothing may be allocated.
    device, host = (_of_plain(torch, name) for name in ("cuda", "cpu"))
    _native.observe_operations(
        os.path.join(os.path.dirname(torch.__file__), "lib"),
        probes,
        target._cdata,
        call,
        (device, device & ~host),
        (host, host & ~device),
        functools.partial(handlers.guarded(_classify, (_OTHER, 0, 0)), torch),
        functools.partial(handlers.guarded(_compute, None), torch),
    )
    _set_back_with_the_programs(torch, _generator(torch))
    triton_kernels.install()


def _keys(torch: Any, tensor: Any) -> int:
    return int(torch._C._dispatch_keys(tensor).raw_repr())


def _of_plain(torch: Any, device: str) -> int:
    keys = 0
    for options in ({}, {"requires_grad": True}):
        keys |= _keys(torch, torch.empty(0, device=device, **options))
    with torch.inference_mode():
        return keys | _keys(torch, torch.empty(0, device=device))


def _classify(torch: Any, number: int, name: str, overload: str) -> tuple[int, int, int]:
    """What the observer does for an operation, the inputs that it writes to, and those of them that it does not read."""
    namespace, _, base = name.partition("::")
    schema = torch._C._get_schema(name, overload)
    writes = _UNDECLARED.get(name, 0)
    fresh = 0
    for index, argument in enumerate(schema.arguments[:64]):
        if argument.alias_info is not None and argument.alias_info.is_write:
            writes |= 1 << index
            if argument.kwarg_only:
                fresh |= 1 << index
    writes &= ~_LEFT_OUT.get(name, 0)
    if namespace != "aten":
        return _OTHER, writes, fresh
    if base in ("equal", "allclose"):
        return _CHECK, writes, fresh
    if base == "_local_scalar_dense":
        return _READ, writes, fresh
    if base.startswith(("empty", "new_empty", "_empty", "resize")):
        return _MADE, writes, fresh
    if base == "_coalesce":
        return _COALESCED, writes, fresh
    plain = base if base.startswith("__") else base.removeprefix("_foreach_").rstrip("_")
    if plain in _OVERWRITING:
        fresh |= 1
    kind = (
        _COUNTED_ROWS
        if plain in _COUNTED_NAMES and "_dim" in plain
        else _COUNTED
        if plain in _COUNTED_NAMES
        else _RANDOM_NUMBERS
        if plain in _RANDOM
        else _DRAWN
        if plain in _CHOOSING
        else _ASSUMED
        if base == "all" and not overload or base in _COMPARING
        else _COPIED
        if plain == "copy"
        else _PLACED
        if plain in _PLACING
        else _COMPUTED
        if plain in _COMPUTED_NAMES
        else _OTHER
    )
    if kind != _OTHER:
        _operations[number] = _Operation(getattr(getattr(torch.ops.aten, base), overload or "default"), plain, schema)
    return kind, writes, fresh


class _Operation:
    """One operation on the host."""

    def __init__(self, function: Any, name: str, schema: Any) -> None:
        self.function = function
        self.name = name
        self.arguments = [(argument.name, argument.kwarg_only) for argument in schema.arguments]
        written = [argument.name for argument in schema.arguments if argument.alias_info is not None and argument.alias_info.is_write]
        #: The arguments that are its results: it writes to more than it gives back.
        self.written = written if len(written) > len(schema.returns) else []
        #: How many tensors these are; none of one whose results are lists.
        self.outputs = 0 if self.written or any(str(result.type) != "Tensor" for result in schema.returns) else len(schema.returns)


def _compute(torch: Any, number: int, inputs: list[Any], is_unknown: bool) -> Optional[list[Output]]:
    """The outputs of an operation, or none if the host cannot tell."""
    operation = _operations[number]
    with _plain(torch):
        try:
            inputs = later.found(inputs)
            if is_unknown and operation.name in _COMPARING:
                inputs = [_one_fraction(value) for value in inputs]
                if any(isinstance(value, tuple) and value[3] is None for value in inputs):
                    return None
            elif is_unknown or operation.name in _RANDOM:
                return _draw(torch, operation, inputs)
            size = _size_of_result(operation.name, inputs)
            run = functools.partial(_run, torch, operation)
            is_late = size > _LARGEST or any(map(later.is_later, later.flattened(inputs)))
            if operation.name in _PLACING and inputs[0][3] is None:
                return None if is_late else _placed(torch, run, inputs)
            if is_late:
                if operation.name not in _COUNTED_NAMES:
                    return later.put_off(run, inputs, size, operation.outputs)
                if not later.is_affordable(size):
                    return None
            return [_output(torch, result) for result in run(later.computed(inputs, {}))]
        except (RuntimeError, NotImplementedError, IndexError, KeyError, TypeError) as error:
            if handlers.has_raised(error):
                raise
            return None


def _run(torch: Any, operation: _Operation, inputs: list[Any]) -> Sequence[Any]:
    """The results of an operation on the host."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for (name, is_named), value in zip(operation.arguments, inputs):
        value = None if name in ("device", "pin_memory", "layout") or value is ... else _argument(torch, value)
        if is_named:
            named[name] = value
        else:
            positional.append(value)
    if operation.name == "histc":  # the host counts fractions alone
        results = operation.function(positional[0].double(), *positional[1:], **named).to(positional[0].dtype)
    else:
        results = operation.function(*positional, **named)
    if operation.written:
        given = dict(zip((name for name, is_named in operation.arguments if not is_named), positional), **named)
        results = later.flattened([given[name] for name in operation.written])
    return results if isinstance(results, (tuple, list)) else [results]


def _placed(torch: Any, run: Any, inputs: list[Any]) -> Optional[list[Output]]:
    """The outputs of an operation that writes to a tensor that is not known, if nothing is left of that: it is the same of two."""
    kind, sizes, strides, _ = inputs[0]
    span = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))
    one, other = (
        [_output(torch, result) for result in run([(kind, sizes, strides, bytes([byte]) * span * _types(torch)[kind].itemsize), *inputs[1:]])]
        for byte in (0, 1)
    )
    return one if one == other else None


def value_of(number: int, before: int, size: int) -> Optional[bytes]:
    """Bytes of a tensor that was to be computed later, as the program reads them."""
    import torch

    with _plain(torch):
        return later.read(number, before, size)


@contextlib.contextmanager
def _plain(torch: Any) -> Iterator[None]:
    """Whatever the program has switched on is not for us: modes, autocast, transformations."""
    from torch.utils._python_dispatch import _disable_current_modes

    traced = torch._C._get_tracing_state()
    if traced is not None:
        torch._C._set_tracing_state(None)
    try:
        with torch._C._DisableTorchDispatch(), torch._C._DisableFuncTorch(), torch._C._AutoDispatchBelowAutograd(), _disable_current_modes():
            yield
    finally:
        if traced is not None:
            torch._C._set_tracing_state(traced)


def _one_fraction(value: Any) -> Any:
    """An input with a small fraction in place of one that is not known."""
    if not isinstance(value, tuple) or value[3] is not None or math.prod(value[1]) != 1:
        return value
    kind, sizes, strides, _ = value
    return kind, sizes, strides, unknown_fractions.numbers(kind, 1)


@functools.cache
def _types(torch: Any) -> dict[int, Any]:
    names = {0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64", 11: "bool", 15: "bfloat16"}
    return {number: getattr(torch, name) for number, name in names.items()}


def _argument(torch: Any, value: Any) -> Any:
    """An input on the host."""
    if isinstance(value, list):
        return [_argument(torch, element) for element in value]
    if not isinstance(value, tuple):
        return value
    kind, sizes, strides, data = value
    dtype = _types(torch)[kind]
    if data is None or 0 in sizes:
        return torch.empty(sizes, dtype=dtype, device="cpu")
    is_bytes = isinstance(data, bytes)
    flat = torch.frombuffer(bytearray(data), dtype=dtype) if is_bytes else data.view(dtype)  # always of the host
    tensor = flat.as_strided(sizes, strides)
    # An operation in place would write several elements of an expanded tensor at once, or to what others are computed from.
    return tensor.clone() if not is_bytes or any(stride == 0 and size > 1 for size, stride in zip(sizes, strides)) else tensor


def _size_of_result(name: str, inputs: list[Any]) -> int:
    """An upper bound of the elements of the result, where it can be larger than the inputs."""
    shapes: list[Sequence[int]] = [value[1] for value in later.flattened(inputs) if isinstance(value, tuple)]
    if name in ("index", "_unsafe_index", "index_select", "repeat_interleave") and len(shapes) > 1:
        return max(math.prod(shape) for shape in shapes[1:]) * max(1, math.prod(shapes[0][1:]))
    if name == "cat" or not shapes:
        return sum(math.prod(shape) for shape in shapes)
    rank = max(len(shape) for shape in shapes)
    padded = [[1] * (rank - len(shape)) + list(shape) for shape in shapes]
    return math.prod(max(sizes) for sizes in zip(*padded))


def _output(torch: Any, result: Any) -> Output:
    if not isinstance(result, torch.Tensor):
        return UNKNOWN
    kind = next((number for number, dtype in _types(torch).items() if dtype == result.dtype), None)
    if kind is None:
        return UNKNOWN
    flat = result.detach().contiguous().reshape(-1)
    return kind, list(result.shape), flat.view(torch.uint8).numpy().tobytes() if 0 < flat.nbytes <= _MOST_BYTES else b""


def _draw(torch: Any, operation: _Operation, inputs: list[Any]) -> Optional[list[Output]]:
    """Indices in place of those that unknown values would give."""
    generator = _generator(torch)
    given = {name: value for (name, _), value in zip(operation.arguments, inputs)}
    sizes = list(inputs[0][1]) if isinstance(inputs[0], tuple) else []
    if operation.name == "all":
        return [_output(torch, torch.tensor(True, device="cpu"))]
    if operation.name in _RANDOM:
        return _draw_random(torch, operation.name, given, sizes)
    if not sizes or 0 in sizes:
        return None
    dim = given.get("dim")
    if operation.name in ("max", "min") and not isinstance(dim, int) or not isinstance(dim, int) and operation.name.startswith("arg"):
        return None  # of all elements: nothing is chosen that has a size
    axis = (dim if isinstance(dim, int) else -1) % len(sizes)
    choices = sizes[axis]
    count = int(given["k"]) if operation.name == "topk" else choices if operation.name == "sort" else 1
    rows = math.prod(sizes) // choices
    if rows * count > _LARGEST or count > choices:
        return None
    if count == 1:
        drawn = torch.randint(choices, (rows, 1), generator=generator, device="cpu")
    elif count > 64:
        drawn = torch.rand((rows, choices), generator=generator, device="cpu").argsort(-1)[:, :count]
    else:
        drawn = _different(torch, rows, count, choices)
    others = sizes[:axis] + sizes[axis + 1 :]
    indices = drawn.reshape(*others, count).movedim(-1, axis)
    if operation.name in ("max", "min", "argmax", "argmin") and not given.get("keepdim"):
        indices = indices.squeeze(axis)
    return [_output(torch, indices)] if operation.name.startswith("arg") else [UNKNOWN, _output(torch, indices)]


def _different(torch: Any, rows: int, count: int, choices: int) -> Any:
    """``count`` different numbers below ``choices`` in each row, by Floyd's algorithm for all rows at once."""
    chosen: list[Any] = []
    for last in range(choices - count, choices):
        number = torch.randint(last + 1, (rows,), generator=_generator(torch), device="cpu")
        taken = [number == other for other in chosen]
        for is_taken in taken:
            number = torch.where(is_taken, last, number)
        chosen.append(number)
    return torch.stack(chosen, 1)


def _draw_random(torch: Any, name: str, given: dict[str, Any], sizes: list[int]) -> Optional[list[Output]]:
    """Random integers of the right range."""
    generator = _generator(torch)
    if name == "multinomial":
        count = int(given["num_samples"])
        rows, choices = math.prod(sizes[:-1]), sizes[-1]
        if rows * count > _LARGEST or choices < 1:
            return None
        return [_output(torch, torch.randint(choices, (*sizes[:-1], count), generator=generator, device="cpu"))]
    out = given.get("out") if name != "random" else given.get("self")
    if not isinstance(out, tuple) or out[0] not in (0, 1, 2, 3, 4):
        return None
    if name == "randperm":
        return [_output(torch, torch.randperm(int(given["n"]), generator=generator, device="cpu").to(_types(torch)[out[0]]))]
    low = given.get("low", given.get("from")) or 0
    high = given.get("high", given.get("to"))
    if not isinstance(high, int) or not low < high:
        return None
    return [_output(torch, torch.randint(low, high, out[1], generator=generator, device="cpu", dtype=_types(torch)[out[0]]))]


@functools.cache
def _generator(torch: Any) -> Any:
    """Ours: what the program draws stays as it is."""
    return torch.Generator("cpu").manual_seed(0)


def _set_back_with_the_programs(torch: Any, generator: Any) -> None:
    """Set our generator back where the program sets its own back, as checkpointing does: recomputation draws as the forward pass did."""
    states = torch.utils.weak.WeakIdKeyDictionary()
    get, give = torch.get_rng_state, torch.set_rng_state

    @functools.wraps(get)
    def get_rng_state() -> Any:
        state = get()
        states[state] = generator.get_state()
        return state

    @functools.wraps(give)
    def set_rng_state(new_state: Any) -> None:
        give(new_state)
        if new_state in states:
            generator.set_state(states[new_state])

    for module in (torch, torch.random):
        module.get_rng_state, module.set_rng_state = get_rng_state, set_rng_state
