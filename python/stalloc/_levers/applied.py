"""What each lever does to a model or an optimizer: calls that can be written into a script, made twice without harm, and taken off again.

A copy of a model has the lever too, with its own weights. A pickle of it has none, and loads without stalloc; so does a state dict.
"""

from __future__ import annotations

import functools
import inspect
import weakref
from contextlib import nullcontext
from typing import Any, Callable, Iterable, Iterator


class Applied:
    """A module's ``forward``, called in another way."""

    def __init__(self, forward: Any, call: Callable[..., Any], **settings: Any) -> None:
        self.__wrapped__ = forward  # what asks for the signature finds it
        self.call, self.settings = call, settings

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.call(self, arguments, options)

    def __deepcopy__(self, memo: dict[int, Any]) -> Applied:
        import copy

        return Applied(copy.deepcopy(self.__wrapped__, memo), self.call, **copy.deepcopy(self.settings, memo))

    def __reduce__(self) -> tuple[Any, ...]:
        owner = getattr(self.__wrapped__, "__self__", None)
        return (getattr, (owner, self.__wrapped__.__name__)) if owner is not None else (functools.partial, (self.__wrapped__,))


def apply(module: Any, call: Callable[..., Any], **settings: Any) -> None:
    forward = module.forward
    while isinstance(forward, Applied):
        if forward.call is call:
            forward.settings = settings
            return
        forward = forward.__wrapped__
    outer = module.forward
    if isinstance(outer, Applied) and "spiller" in outer.settings:  # around all others: the innermost hooks of saved tensors act
        outer.__wrapped__ = Applied(outer.__wrapped__, call, **settings)
    else:
        module.forward = Applied(outer, call, **settings)


#: What takes a lever off an optimizer or a model, by the lever's name.
_undoing: weakref.WeakKeyDictionary[Any, dict[str, Callable[[], Any]]] = weakref.WeakKeyDictionary()


def _undo_later(target: Any, name: str, undo: Callable[[], Any]) -> None:
    _undoing.setdefault(target, {})[name] = undo


def _has(target: Any, name: str) -> bool:
    return name in _undoing.get(target, {})


def undo(target: Any, name: str) -> None:
    """Take one lever off that is not about how modules are called."""
    _undoing.get(target, {}).pop(name, lambda: None)()


def take_off(target: Any) -> None:
    """Have a model or an optimizer as it was before levers. Weights that are 16 bits wide stay so."""
    for name in list(_undoing.get(target, {})):
        undo(target, name)
    for module in target.modules() if hasattr(target, "modules") else ():
        while isinstance(forward := module.__dict__.get("forward"), Applied):
            if getattr(forward.__wrapped__, "__func__", None) is type(module).forward:
                del module.forward
            else:
                module.forward = forward.__wrapped__


# Activations


def checkpoint(*blocks: Any, keep_matmuls: bool = False) -> None:
    """Have each block keep its input alone, or what its matrix products gave too, and compute the rest again in the backward pass.

    Buffers that a block changes (running figures, counters) change once.
    """
    for block in called(blocks):
        apply(block, _checkpointed, keep_matmuls=keep_matmuls)


def called(modules: Iterable[Any], is_inner: bool = False) -> Iterator[Any]:
    """Modules, and in place of a list of them, which nobody calls, those in it that have parts."""
    import torch

    for module in modules:
        if isinstance(module, (torch.nn.ModuleList, list, tuple)):
            yield from called(module, is_inner=True)
        elif not is_inner or any(True for _ in module.children()):
            yield module


_MATMULS = "mm addmm bmm baddbmm convolution _scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention"


def _checkpointed(applied: Applied, arguments: Any, options: Any) -> Any:
    import torch
    from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

    if not torch.is_grad_enabled():
        return applied.__wrapped__(*arguments, **options)
    owner = owner_of(applied)
    buffers = _Buffers([] if owner is None else owner.modules(), applied.settings.get("changes", True))

    def contexts() -> tuple[Any, Any]:
        if not applied.settings["keep_matmuls"]:
            return nullcontext(), buffers
        first, buffers.inner = create_selective_checkpoint_contexts([getattr(torch.ops.aten, name).default for name in _MATMULS.split()])
        return first, buffers

    given: dict[Any, Any] = {**dict(enumerate(arguments)), **options}
    handed = {at: _copied(one) for at, one in given.items() if type(one) in CONTAINERS}
    # What is handed twice is one tensor when it is computed again, too: hooks of saved tensors would make two, and attention looks.
    places = {at: next(place for place, other in given.items() if other is one) for at, one in given.items()}

    def forward(*again: Any, **named: Any) -> Any:
        now: dict[Any, Any] = {**dict(enumerate(again)), **named}
        now |= {at: _copied(handed[at]) if buffers.now and at in handed else now[place] for at, place in places.items()}
        return applied.__wrapped__(*(now[at] for at in range(len(again))), **{name: now[name] for name in named})

    # From PyTorch 2.15 on it asks what hooks of saved tensors around it see of what is kept: nothing, as before.
    if applied.settings["keep_matmuls"] and _asks_for_hooks(checkpoint):
        options = options | {"respect_saved_tensors_hooks": False}
    result = checkpoint(forward, *arguments, use_reentrant=False, context_fn=contexts, **options)
    applied.settings["changes"] = buffers.have_changed()
    return result


@functools.lru_cache
def _asks_for_hooks(checkpoint: Any) -> bool:
    return "respect_saved_tensors_hooks" in inspect.signature(checkpoint).parameters


class _Buffers:
    """Buffers as they were when a block was called, while it is computed again; what it makes of them then is dropped."""

    #: Entered with it.
    inner: Any = nullcontext()

    def __init__(self, modules: Iterable[Any], are_kept: bool) -> None:
        found = [(module, name) for module in modules for name, value in module._buffers.items() if value is not None]
        self._places, self._versions = found, [self._version(*place) for place in found]
        self._then: list[Any] = self._copies() if are_kept else []
        self.now: list[list[Any]] = []

    def have_changed(self) -> bool:
        """The block was called: whether it changed buffers."""
        if [self._version(*place) for place in self._places] == self._versions:
            self._then = []
            return False
        self._then = self._then or self._copies()
        return True

    @staticmethod
    def _version(module: Any, name: str) -> tuple[int, int]:
        return id(module._buffers[name]), module._buffers[name]._version

    def _copies(self) -> list[Any]:
        return [module._buffers[name].detach().clone() for module, name in self._places]

    def __enter__(self) -> None:
        self.now.append([module._buffers[name] for module, name in self._places if self._then])
        for (module, name), value in zip(self._places, self._then):
            module._buffers[name] = value.clone()
        self.inner.__enter__()

    def __exit__(self, *about: Any) -> None:
        self.inner.__exit__(*about)
        for (module, name), value in zip(self._places, self.now.pop()):
            module._buffers[name] = value


#: What a block may append to or take from where it is handed it: computed again, it is handed a copy of what there was.
CONTAINERS = (list, dict, set, bytearray)


def _copied(held: Any) -> Any:
    if type(held) is dict:
        return {name: _copied(one) for name, one in held.items()}
    return [_copied(one) for one in held] if type(held) is list else held.copy() if type(held) in CONTAINERS else held


def offload(*modules: Any) -> None:
    """Have what the forward pass of a model, or of each of some blocks, saves wait in host memory. Weights stay where they are."""
    for module in called(modules):
        apply(module, _offloaded)


def _offloaded(applied: Applied, arguments: Any, options: Any) -> Any:
    import torch

    if has_hooks(torch):  # a checkpoint of the program's own counts what is saved in it
        return applied.__wrapped__(*arguments, **options)
    module = owner_of(applied)
    tensors = [*module.parameters(), *module.buffers()] if module is not None else []
    kept = {_address(tensor) for tensor in tensors}

    def pack(tensor: Any) -> Any:
        if tensor.layout != torch.strided or _address(tensor) in kept:
            return tensor
        part = tensor
        for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride())):
            part = part.narrow(dim, 0, 1) if stride == 0 and size > 1 else part
        is_pinned = tensor.is_cuda
        return torch.empty_like(part, device="cpu", pin_memory=is_pinned).copy_(part), tensor.device, tensor.shape, tensor.stride()

    def unpack(packed: Any) -> Any:
        if isinstance(packed, torch.Tensor):
            return packed
        host, device, shape, strides = packed
        return torch.empty_strided(host.shape, strides, dtype=host.dtype, device=device).copy_(host, non_blocking=True).expand(shape)

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        return applied.__wrapped__(*arguments, **options)


def has_hooks(torch: Any) -> bool:
    """Whether the program has hooks of saved tensors here; PyTorch says so from 2.5 on."""
    top: Any = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda _ignores_tracing: None)
    try:
        return top(False) is not None
    except TypeError:
        return top() is not None


def owner_of(applied: Any) -> Any:
    """The module whose ``forward`` it is."""
    while isinstance(applied, Applied):
        applied = applied.__wrapped__
    owner = getattr(applied, "__self__", None)
    return owner if hasattr(owner, "parameters") else None


def _address(tensor: Any) -> int:
    return int(getattr(tensor, "_local_tensor", tensor).untyped_storage().data_ptr())


# Precision


def autocast_bf16(module: Any) -> None:
    """Have the forward pass of a model compute in 16 bits where PyTorch takes that to be safe."""
    apply(module, _in_16_bits)


def _in_16_bits(applied: Applied, arguments: Any, options: Any) -> Any:
    import torch

    parameter = next(owner_of(applied).parameters(), None)
    with torch.autocast("cuda" if parameter is None else parameter.device.type, torch.bfloat16):
        return applied.__wrapped__(*arguments, **options)


def weights_bf16(module: Any) -> None:
    """Have weights, and with them gradients and the optimizer's states, in 16 bits, and the model's inputs too."""
    import torch

    apply(module.to(torch.bfloat16), _of_16_bits)


def _of_16_bits(applied: Applied, arguments: Any, options: Any) -> Any:
    return applied.__wrapped__(*map(_narrow, arguments), **{name: _narrow(value) for name, value in options.items()})


def _narrow(value: Any) -> Any:
    import torch

    return value.to(torch.bfloat16) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


# The optimizer


def fused(optimizer: Any) -> None:
    """Have an optimizer update all parameters in one kernel. Its state dict stays the script's."""
    _with_options(optimizer, {"fused": True, "foreach": False})
    optimizer._step_supports_amp_scaling = True


def foreach_off(optimizer: Any) -> None:
    """Have an optimizer update one parameter after the other. Its state dict stays the script's."""
    _with_options(optimizer, {"foreach": False})


def _with_options(optimizer: Any, options: dict[str, Any]) -> None:
    if _has(optimizer, "options"):
        return
    own = [{name: group[name] for name in options if name in group} for group in (optimizer.defaults, *optimizer.param_groups)]

    def of(index: int) -> dict[str, Any]:
        return own[index + 1] if index + 1 < len(own) else own[0]

    def saved(_optimizer: Any, state: dict[str, Any]) -> dict[str, Any]:
        groups = [group | of(index) for index, group in enumerate(state["param_groups"])]
        # A fused step counts on the device, another one on the host.
        on_host = {id for group in groups if not group.get("fused") and not group.get("capturable") for id in group["params"]}
        states = {id: _counted_on_host(value) if id in on_host else value for id, value in state["state"].items()}
        return state | {"param_groups": groups, "state": states}

    def loaded(_optimizer: Any, state: dict[str, Any]) -> dict[str, Any]:
        return state | {"param_groups": [group | options for group in state["param_groups"]]}

    handles = [optimizer.register_state_dict_post_hook(saved), optimizer.register_load_state_dict_pre_hook(loaded)]

    def undo() -> None:
        for handle in handles:
            handle.remove()
        optimizer.__dict__.pop("_step_supports_amp_scaling", None)
        optimizer.load_state_dict(saved(optimizer, optimizer.state_dict()))

    _undo_later(optimizer, "options", undo)
    for group in (optimizer.defaults, *optimizer.param_groups):
        group.update(options)
    if options.get("fused") and optimizer.state:
        optimizer.load_state_dict(optimizer.state_dict())  # steps are counted on the device from here on


def _counted_on_host(state: Any) -> Any:
    step = state.get("step") if isinstance(state, dict) else None
    return state | {"step": step.cpu()} if step is not None and hasattr(step, "cpu") else state


def states_on_host(optimizer: Any) -> None:
    """Have an optimizer's states wait in host memory, and come in for ``step()`` a piece at a time."""
    from stalloc._levers.host_states import HostStates

    if not _has(optimizer, "states_on_host"):
        _undo_later(optimizer, "states_on_host", HostStates(optimizer).take_off)


def zero_grad_early(optimizer: Any) -> None:
    """Have gradients freed right after the step."""
    if not _has(optimizer, "zero_grad_early"):
        _undo_later(optimizer, "zero_grad_early", optimizer.register_step_post_hook(_free_gradients).remove)


def _free_gradients(optimizer: Any, *_about: Any) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = None


def no_unused_gradients(model: Any, *optimizers: Any) -> None:
    """Have no gradients of parameters that no optimizer updates, until one is given them."""
    trained = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
    unused = [p for p in model.parameters() if p.requires_grad and id(p) not in trained]

    def added(optimizer: Any, add: Any, group: Any) -> None:
        add(group)
        for parameter in optimizer.param_groups[-1]["params"]:
            parameter.requires_grad_(parameter.requires_grad or any(parameter is one for one in unused))

    for parameter in unused:
        parameter.requires_grad_(False)
    if unused:
        for optimizer in optimizers:
            optimizer.add_param_group = functools.partial(added, optimizer, optimizer.add_param_group)
        put_back = [functools.partial(parameter.requires_grad_, True) for parameter in unused]
        put_back += [functools.partial(optimizer.__dict__.pop, "add_param_group", None) for optimizer in optimizers]
        _undo_later(model, "no_unused_gradients", lambda: [each() for each in put_back])


#: The hook of each parameter that is updated in the backward pass.
_stepping: Any = None


def step_in_backward(optimizer: Any) -> None:
    """Have each parameter updated in the backward pass, by the optimizer itself, and its gradient freed. ``step()`` stays where it is."""
    from torch.utils.weak import WeakIdKeyDictionary

    global _stepping
    _stepping = WeakIdKeyDictionary() if _stepping is None else _stepping
    # Without hooks: a step of one parameter is none of the program's steps.
    step = type(optimizer).step
    step = step.__wrapped__ if getattr(step, "hooked", False) else step

    def step_now(parameter: Any, index: int) -> None:
        groups = optimizer.param_groups  # those of a state dict that was loaded meanwhile, too
        group = groups[index]
        held, group["params"], optimizer.param_groups = group["params"], [parameter], [group]
        try:
            step(optimizer)
        finally:
            group["params"], optimizer.param_groups = held, groups
        parameter.grad = None

    handles = []
    for index, group in enumerate(optimizer.param_groups):
        for parameter in group["params"]:
            if parameter in _stepping:
                _stepping.pop(parameter).remove()  # of an optimizer that this one takes the place of
            if parameter.requires_grad:
                handle = parameter.register_post_accumulate_grad_hook(functools.partial(step_now, index=index))
                _stepping[parameter] = handle
                handles.append(handle)

    _undo_later(optimizer, "step_in_backward", lambda: [handle.remove() for handle in handles])


def accumulate(optimizer: Any) -> None:
    """Have an optimizer step for every second call, with the mean of both calls' gradients."""
    if _has(optimizer, "accumulate"):
        return
    step, zero_grad, halves = optimizer.step, optimizer.zero_grad, [0]

    @functools.wraps(step)
    def second_step(*arguments: Any, **options: Any) -> Any:
        halves[0] += 1
        if halves[0] % 2:
            return None
        for parameter in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
            parameter.grad /= 2
        return step(*arguments, **options)

    def second_zero(*arguments: Any, **options: Any) -> None:
        if halves[0] % 2 == 0:
            zero_grad(*arguments, **options)

    optimizer.step, optimizer.zero_grad = second_step, second_zero
    _undo_later(optimizer, "accumulate", lambda: [vars(optimizer).pop(name) for name in ("step", "zero_grad")])

