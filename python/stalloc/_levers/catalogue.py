"""The levers, each by PyTorch's public means: what it needs of a program, how it is applied, and how it is written by hand.

What is applied and what is printed are the same lines: the printed ones, written into the script, ask for the same memory.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
from typing import Any, Callable

from stalloc._levers.program import LEAST_CLASSES, Blocks, Program, blocks_of, models_of


class Lever:
    """One lever. A method called ``on_...`` applies it when the program has come that far, and says whether it did."""

    name: str
    #: Levers of one group take the place of each other.
    group: str
    #: What becomes of the numbers: ``same``, ``rounding`` (sums in another order), ``change``.
    numerics = "same"

    def what(self, program: Program) -> str:
        """What it does to this program, in a few words."""
        raise NotImplementedError

    def how(self, program: Program) -> str:
        """The lines that do it."""
        raise NotImplementedError

    def why_not(self, program: Program) -> str | None:
        """Why it is not to be tried; None: it is."""
        return None

    def found(self, program: Program) -> dict[str, Any]:
        """All that is said of it."""
        why_not = self.why_not(program)
        return {
            "name": self.name,
            "what": "" if why_not else self.what(program),
            "how": "" if why_not else self.how(program),
            "numerics": self.numerics,
            "group": self.group,
            "why_not": why_not,
        }

    def on_torch(self, program: Program) -> bool:
        """PyTorch has been imported."""
        return False

    def on_optimizer(self, program: Program, optimizer: Any) -> bool:
        """An optimizer was made."""
        return False

    def on_model(self, program: Program, name: str, model: Any) -> bool:
        """A model is called for training for the first time."""
        return False

    def on_step(self, program: Program, optimizer: Any) -> bool:
        """An optimizer has stepped."""
        return False


class _OfBlocks(Lever):
    """One that changes how repeated blocks are called."""

    group = "activations"
    #: Which of the blocks, as a slice is written.
    part = ""
    #: What the lines begin with.
    first_lines: tuple[str, ...] = ()

    def called(self, torch: Any, forward: Callable[..., Any]) -> Callable[..., Any]:
        """A block's ``forward`` with the lever."""
        raise NotImplementedError

    #: The same, as it is written, and in a few words.
    written: str
    does: str

    def why_not(self, program: Program) -> str | None:
        if "checkpoint" in program.does:
            return "the script checkpoints already"
        if "compile" in program.does:
            return "the script is compiled: its compiler decides what is kept (torch._functorch.config.activation_memory_budget)"
        if not program.blocks():
            return "no repeated blocks: no ModuleList or Sequential of equal modules is called for training"
        return None

    def what(self, program: Program) -> str:
        return f"{self.does}: " + " and ".join(f"{len(self.chosen(b))} of {len(b.members)} blocks of {b.name}" for b in program.blocks())

    def how(self, program: Program) -> str:
        lines = list(self.first_lines)
        for name, model in program.models:
            if _keeps_a_cache(model):
                lines.append(f"{name}.config.use_cache = False")
        for blocks in program.blocks():
            part = self.part.replace("N", str(len(blocks.members) // 2))
            lines += [f"for block in {blocks.name}{part}:", f"    block.forward = {self.written}"]
        return "\n".join(lines)

    def chosen(self, blocks: Blocks) -> list[Any]:
        """The blocks that it changes."""
        if not self.part:
            return blocks.members
        return blocks.members[::2] if self.part == "[::2]" else blocks.members[: len(blocks.members) // 2]

    def on_model(self, program: Program, name: str, model: Any) -> bool:
        if _keeps_a_cache(model):
            model.config.use_cache = False
        members = [block for blocks in program.blocks_of(name) for block in self.chosen(blocks)]
        for block in members:
            block.forward = self.called(program.torch, block.forward)
        return bool(members)


def _keeps_a_cache(model: Any) -> bool:
    """Whether it is a language model of transformers that keeps keys and values, which a second call would append to."""
    return getattr(getattr(model, "config", None), "use_cache", None) is True


_IMPORTS = ("from functools import partial", "from torch.utils.checkpoint import checkpoint")


class Checkpoint(_OfBlocks):
    """Each repeated block keeps its input alone, and computes the rest again in the backward pass."""

    name = "checkpoint"
    first_lines = _IMPORTS
    does = "activations are computed again in the backward pass"
    written = "partial(checkpoint, block.forward, use_reentrant=False)"

    def called(self, torch: Any, forward: Callable[..., Any]) -> Callable[..., Any]:
        from torch.utils.checkpoint import checkpoint

        return functools.partial(checkpoint, forward, use_reentrant=False)


class CheckpointSecond(Checkpoint):
    """The same for every second block: half of the saving at half of the cost."""

    name = "checkpoint_every_second"
    part = "[::2]"


_SAVED = "mm addmm bmm baddbmm convolution _scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention"


class CheckpointSelective(_OfBlocks):
    """Each block keeps what its products gave, and computes the cheap rest again."""

    name = "checkpoint_keep_matmuls"
    first_lines = (
        "from functools import partial",
        "from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts",
        f"kept = [getattr(torch.ops.aten, name).default for name in {_SAVED!r}.split()]",
        "contexts = partial(create_selective_checkpoint_contexts, kept)",
    )
    does = "all but what matrix products gave is computed again in the backward pass"
    written = "partial(checkpoint, block.forward, use_reentrant=False, context_fn=contexts)"

    def called(self, torch: Any, forward: Callable[..., Any]) -> Callable[..., Any]:
        from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

        kept = [getattr(torch.ops.aten, name).default for name in _SAVED.split()]
        contexts = functools.partial(create_selective_checkpoint_contexts, kept)
        return functools.partial(checkpoint, forward, use_reentrant=False, context_fn=contexts)


def _offloaded(torch: Any, forward: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(forward)
    def called(*arguments: Any, **options: Any) -> Any:
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            return forward(*arguments, **options)

    return called


_OFFLOADED = (
    "def offloaded(forward):",
    "    def called(*arguments, **options):",
    "        with torch.autograd.graph.save_on_cpu(pin_memory=True):",
    "            return forward(*arguments, **options)",
    "    return called",
)


class Offload(Lever):
    """What the forward pass of a model saves waits in host memory."""

    name = "offload"
    group = "activations"

    def why_not(self, program: Program) -> str | None:
        if "compile" in program.does:
            return "the script is compiled: what it saves cannot be moved from outside"
        return None if program.models else "no module is called for training"

    def what(self, program: Program) -> str:
        return "saved tensors of the forward pass wait in host memory"

    def how(self, program: Program) -> str:
        return "\n".join([*_OFFLOADED, *(f"{name}.forward = offloaded({name}.forward)" for name, _model in program.models)])

    def on_model(self, program: Program, name: str, model: Any) -> bool:
        model.forward = _offloaded(program.torch, model.forward)
        return True


class OffloadHalf(_OfBlocks):
    """The first half of the blocks alone: their saved tensors live longest across the peak."""

    name = "offload_first_half"
    part = "[:N]"
    first_lines = _OFFLOADED
    does = "saved tensors wait in host memory"
    written = "offloaded(block.forward)"

    def called(self, torch: Any, forward: Callable[..., Any]) -> Callable[..., Any]:
        return _offloaded(torch, forward)


class _OfOptimizer(Lever):
    """An option of PyTorch's optimizers."""

    group = "optimizer"
    option: str
    value: bool

    def takes(self, optimizer: Any) -> bool:
        """Whether an optimizer has the option and does not use it."""
        raise NotImplementedError

    def _names(self, program: Program) -> list[str]:
        return sorted({type(optimizer).__name__ for optimizer in program.optimizers if self.takes(optimizer)})

    def why_not(self, program: Program) -> str | None:
        if not program.optimizers:
            return "no optimizer of torch.optim"
        if not self._names(program):
            return f"{type(program.optimizers[0]).__name__} has no {self.option}={self.value} to set here"
        return None

    def what(self, program: Program) -> str:
        return f"{' and '.join(self._names(program))} with {self.option}={self.value}"

    def how(self, program: Program) -> str:
        return "\n".join(f"optimizer = torch.optim.{name}(..., {self.option}={self.value})" for name in self._names(program))


class ForeachOff(_OfOptimizer):
    """The optimizer updates one parameter after the other: no temporary copies of all of them."""

    name = "foreach_off"
    option, value = "foreach", False

    def takes(self, optimizer: Any) -> bool:
        group = optimizer.param_groups[0]
        return "foreach" in group and group["foreach"] is not False and not group.get("fused")

    def on_optimizer(self, program: Program, optimizer: Any) -> bool:
        if not self.takes(optimizer):
            return False
        for group in (optimizer.defaults, *optimizer.param_groups):
            group["foreach"] = False
        return True


class Fused(_OfOptimizer):
    """The optimizer updates all parameters in one kernel: no temporary copies either, and faster."""

    name = "fused"
    option, value = "fused", True

    def takes(self, optimizer: Any) -> bool:
        group = optimizer.param_groups[0]
        is_possible = all(p.is_floating_point() and p.is_cuda for group in optimizer.param_groups for p in group["params"])
        return is_possible and "fused" in group and not group["fused"] and not group.get("differentiable") and group.get("foreach") is not True

    def on_model(self, program: Program, name: str, model: Any) -> bool:
        # The model may move to the device after the optimizer was made: the states are made in the first step.
        taking = [optimizer for optimizer in program.optimizers if self.takes(optimizer)]
        for optimizer in taking:
            optimizer._step_supports_amp_scaling = True
            for group in (optimizer.defaults, *optimizer.param_groups):
                group["fused"], group["foreach"] = True, False
        return bool(taking)


class EightBit(Lever):
    """The optimizer's states have 8 bits."""

    name = "optimizer_8bit"
    group = "optimizer"
    numerics = "change"
    _kinds = ("AdamW", "Adam")

    def why_not(self, program: Program) -> str | None:
        if importlib.util.find_spec("bitsandbytes") is None:
            return "bitsandbytes is not installed"
        if not any(type(optimizer).__name__ in self._kinds for optimizer in program.optimizers):
            return "no Adam or AdamW of torch.optim"
        return None

    def what(self, program: Program) -> str:
        return "Adam's states in 8 bits (bitsandbytes)"

    def how(self, program: Program) -> str:
        names = sorted({type(optimizer).__name__ for optimizer in program.optimizers} & set(self._kinds))
        return "\n".join(f"optimizer = bitsandbytes.optim.{name}8bit(...)" for name in names)

    def on_torch(self, program: Program) -> bool:
        if importlib.util.find_spec("bitsandbytes") is None:
            return False

        def replaced(kind: str) -> Any:
            def made(*arguments: Any, **options: Any) -> Any:
                import bitsandbytes

                smaller = getattr(bitsandbytes.optim, f"{kind}8bit")
                known = inspect.signature(smaller.__init__).parameters
                return smaller(*arguments, **{name: value for name, value in options.items() if name in known})

            return made

        for kind in self._kinds:
            setattr(program.torch.optim, kind, replaced(kind))
        return True


class StepInBackward(Lever):
    """Each parameter is updated as soon as its gradient is there, which goes then."""

    name = "step_in_backward"
    group = "step"

    def why_not(self, program: Program) -> str | None:
        if not program.optimizers:
            return "no optimizer of torch.optim"
        for what, why in (
            ("clip", "the script clips gradients, which needs all of them at once"),
            ("scaler", "the script scales gradients, which looks at all of them before the step"),
            ("several backwards", "the script calls backward several times for a step"),
        ):
            if what in program.does:
                return why
        return None

    def what(self, program: Program) -> str:
        return "each parameter is updated in the backward pass, and its gradient freed"

    def how(self, program: Program) -> str:
        kind = type(program.optimizers[0]).__name__
        return "\n".join(
            [
                f"optimizers = {{p: torch.optim.{kind}([p], ...) for p in {_all_parameters(program)} if p.requires_grad}}",
                "def step_now(p):",
                "    optimizers[p].step()",
                "    optimizers[p].zero_grad()",
                "for p in optimizers:",
                "    p.register_post_accumulate_grad_hook(step_now)",
                "# and leave out optimizer.step() and optimizer.zero_grad()",
            ]
        )

    def on_model(self, program: Program, name: str, model: Any) -> bool:
        inside = {id(parameter) for parameter in model.parameters()}
        own: dict[int, Any] = {}
        program.is_ours = True
        for optimizer in program.optimizers:
            known = inspect.signature(type(optimizer).__init__).parameters
            for group in optimizer.param_groups:
                options = {key: value for key, value in group.items() if key in known and key != "params"}
                for parameter in group["params"]:
                    if parameter.requires_grad and id(parameter) in inside:
                        own[id(parameter)] = type(optimizer)([parameter], **options), parameter
        program.is_ours = False

        def step_now(parameter: Any) -> None:
            optimizer, _parameter = own[id(parameter)]
            step = type(optimizer).step
            # The steps that are heard are the script's own, which find nothing to do.
            getattr(step, "__wrapped__", step)(optimizer)
            optimizer.zero_grad()

        for _optimizer, parameter in own.values():
            parameter.register_post_accumulate_grad_hook(step_now)
        return bool(own)


def _all_parameters(program: Program) -> str:
    names = [name for name, _model in program.models]
    return f"{names[0]}.parameters()" if len(names) == 1 else "[" + ", ".join(f"*{name}.parameters()" for name in names) + "]"


class ZeroEarly(Lever):
    """Gradients go right after the step, and do not wait for the next backward pass."""

    name = "zero_grad_early"
    group = "zero"

    def why_not(self, program: Program) -> str | None:
        return None if "late zeroing" in program.does else "gradients are gone already when the forward pass begins"

    def what(self, program: Program) -> str:
        return "gradients are freed right after the step, not after the next forward pass"

    def how(self, program: Program) -> str:
        return "optimizer.step()\noptimizer.zero_grad(set_to_none=True)  # here, and not before the backward pass"

    def on_step(self, program: Program, optimizer: Any) -> bool:
        optimizer.zero_grad(set_to_none=True)
        return True


class Frozen(Lever):
    """Parameters that no optimizer updates need no gradients."""

    name = "no_unused_gradients"
    group = "frozen"

    def _unused(self, program: Program) -> list[Any]:
        trained = program.trained()
        return [p for _name, model in program.models for p in model.parameters() if p.requires_grad and id(p) not in trained]

    def why_not(self, program: Program) -> str | None:
        if not program.optimizers:
            return "no optimizer of torch.optim"
        return None if self._unused(program) else "every parameter with a gradient is trained"

    def what(self, program: Program) -> str:
        return f"{len(self._unused(program))} parameters that no optimizer updates have no gradients"

    def how(self, program: Program) -> str:
        return "\n".join(
            [
                'trained = {p for group in optimizer.param_groups for p in group["params"]}',
                f"for p in {_all_parameters(program)}:",
                "    p.requires_grad_(p in trained)",
            ]
        )

    def on_model(self, program: Program, name: str, model: Any) -> bool:
        unused = self._unused(program) if program.optimizers else []
        for parameter in unused:
            parameter.requires_grad_(False)
        return bool(unused)


def _has_wide_weights(program: Program) -> bool:
    return any(p.dtype == program.torch.float32 for _name, model in program.models for p in model.parameters())


class Autocast(Lever):
    """Operations of the forward pass in 16 bits where PyTorch takes that to be safe."""

    name = "autocast_bf16"
    group = "precision"
    numerics = "change"

    def why_not(self, program: Program) -> str | None:
        if "autocast" in program.does:
            return "the script uses autocast already"
        if "compile" in program.does:
            return "the script is compiled"
        if not program.models:
            return "no module is called for training"
        return None if _has_wide_weights(program) else "the weights have 16 bits already"

    def what(self, program: Program) -> str:
        return "the forward pass under autocast to bf16"

    def how(self, program: Program) -> str:
        return "\n".join(f'{name}.forward = torch.autocast("cuda", torch.bfloat16)({name}.forward)' for name, _model in program.models)

    def on_model(self, program: Program, name: str, model: Any) -> bool:
        model.forward = program.torch.autocast("cuda", program.torch.bfloat16)(model.forward)
        return True


class Bf16(Autocast):
    """Weights, gradients and the optimizer's states in 16 bits."""

    name = "weights_bf16"

    def what(self, program: Program) -> str:
        return "weights, gradients and optimizer states in bf16"

    def how(self, program: Program) -> str:
        lines = [f"{name} = {name}.to(torch.bfloat16)  # before the optimizer is made" for name, _model in program.models]
        return "\n".join([*lines, "# and fractions that go into it: inputs = inputs.to(torch.bfloat16)"])

    def on_model(self, program: Program, name: str, model: Any) -> bool:
        torch = program.torch
        forward = model.to(torch.bfloat16).forward

        def narrow(value: Any) -> Any:
            return value.to(torch.bfloat16) if isinstance(value, torch.Tensor) and value.is_floating_point() else value

        @functools.wraps(forward)
        def called(*arguments: Any, **options: Any) -> Any:
            return forward(*map(narrow, arguments), **{key: narrow(value) for key, value in options.items()})

        model.forward = called
        return True


class Accumulate(Lever):
    """Half of the micro-batch, and a step for two of them."""

    name = "accumulate"
    group = "batch"
    numerics = "rounding"

    def why_not(self, program: Program) -> str | None:
        return None if program.optimizers else "no optimizer of torch.optim"

    def what(self, program: Program) -> str:
        return "half of the micro-batch, with a step for every second one"

    def how(self, program: Program) -> str:
        return "\n".join(
            [
                "(loss / 2).backward()  # of half of the batch",
                "if number % 2 == 1:    # every second time",
                "    optimizer.step()",
                "    optimizer.zero_grad()",
            ]
        )

    def on_optimizer(self, program: Program, optimizer: Any) -> bool:
        step, zero, count = optimizer.step, optimizer.zero_grad, 0

        @functools.wraps(step)
        def every_second(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            return step(*arguments, **options) if count % 2 == 0 else None

        @functools.wraps(zero)
        def after_it(*arguments: Any, **options: Any) -> Any:
            return zero(*arguments, **options) if count % 2 == 0 else None

        optimizer.step, optimizer.zero_grad = every_second, after_it
        return True


class _Logits:
    """The outputs of a linear layer, not computed: a cross-entropy of them is computed in pieces, all else makes them."""

    def __init__(self, hidden: Any, head: Any) -> None:
        self._hidden, self._head = hidden, head

    @property
    def shape(self) -> Any:
        """As of the tensor."""
        return type(self._hidden.shape)((*self._hidden.shape[:-1], self._head.out_features))

    def view(self, *shape: Any) -> Any:
        """As of the tensor; of its last dimension as it is."""
        sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if len(sizes) < 2 or sizes[-1] not in (-1, self._head.out_features) or (sizes[-1] == -1 and -1 in sizes[:-1]):
            return self._made().reshape(*shape)
        return _Logits(self._hidden.reshape(*sizes[:-1], self._hidden.shape[-1]), self._head)

    reshape = view

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Any:
        """As of the tensor."""
        dims = len(self.shape)
        if end_dim % dims == dims - 1:
            return self._made().flatten(start_dim, end_dim)
        return _Logits(self._hidden.flatten(start_dim, end_dim % dims), self._head)

    def __getitem__(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        is_whole = all(isinstance(part, slice) or part is Ellipsis for part in parts)
        if is_whole and (len(parts) < len(self.shape) and Ellipsis not in parts or parts[-1] == slice(None)):
            return _Logits(self._hidden[index], self._head)
        return self._made()[index]

    def _itself(self, *_arguments: Any, **_options: Any) -> Any:
        return self

    float = contiguous = to = _itself

    def __getattr__(self, name: str) -> Any:
        if name in ("device", "dtype", "is_cuda", "requires_grad"):
            return getattr(self._hidden, name)
        return getattr(self._made(), name)

    def _made(self) -> Any:
        import torch

        return torch.nn.functional.linear(self._hidden, self._head.weight, self._head.bias)

    @classmethod
    def __torch_function__(cls, function: Any, _types: Any, arguments: Any = (), options: Any = None) -> Any:
        import torch

        options = dict(options or {})
        if function.__name__ == "cross_entropy":
            logits = arguments[0] if arguments else options.pop("input")
            target = arguments[1] if len(arguments) > 1 else options.pop("target")
            options = {key: value for key, value in options.items() if key not in ("size_average", "reduce")}
            if isinstance(logits, cls) and len(logits.shape) == 2 and not target.is_floating_point():
                pieces = torch.nn.LinearCrossEntropyOptions()
                weight, bias = logits._head.weight, logits._head.bias
                return torch.nn.functional.linear_cross_entropy(
                    logits._hidden, weight, target, linear_bias=bias, options=pieces, **options
                )
        made = [value._made() if isinstance(value, cls) else value for value in arguments]
        return function(*made, **{key: value._made() if isinstance(value, cls) else value for key, value in options.items()})


class ChunkedLoss(Lever):
    """The last layer and its cross-entropy are computed together, some rows at a time: the logits are never whole."""

    name = "chunked_loss"
    group = "loss"
    numerics = "rounding"

    def why_not(self, program: Program) -> str | None:
        if not hasattr(program.torch.nn.functional, "linear_cross_entropy") or not hasattr(program.torch.nn, "LinearCrossEntropyOptions"):
            return "this PyTorch has no linear_cross_entropy in pieces"
        if program.head is None:
            return "no cross-entropy of what a linear layer gave"
        if "compile" in program.does:
            return "the script is compiled"
        return "under autocast the layer's inputs and weights differ in type" if "autocast" in program.does else None

    def what(self, program: Program) -> str:
        name, head = program.head or ("", None)
        return f"{name} ({head.in_features} to {head.out_features}) and its cross-entropy in pieces"  # type: ignore[union-attr]

    def how(self, program: Program) -> str:
        name, head = program.head or ("", None)
        bias = f", linear_bias={name}.bias" if head is not None and head.bias is not None else ""
        return "\n".join(
            [
                f"# hidden: what goes into {name}, which is not called for training; both flattened to rows",
                f"loss = torch.nn.functional.linear_cross_entropy(hidden, {name}.weight, targets{bias},",
                "    options=torch.nn.LinearCrossEntropyOptions())  # in place of cross_entropy",
            ]
        )

    def on_model(self, program: Program, name: str, model: Any) -> bool:
        # Which layer it is shows in the loss: until then every one that widens is asked.
        found = False
        for module in model.modules():
            if type(module) is program.torch.nn.Linear and module.out_features >= max(LEAST_CLASSES, module.in_features):
                module.forward = functools.partial(_Logits, head=module)
                found = True
        return found


class Sharded(Lever):
    """Parameters, gradients and states over several GPUs, of which one rank is run alone."""

    group = "sharding"
    numerics = "rounding"

    def __init__(self, ranks: int) -> None:
        self.name = f"fsdp2_over_{ranks}"
        self.ranks = ranks

    def why_not(self, program: Program) -> str | None:
        if "compile" in program.does:
            return "the script is compiled"
        if "distributed" in program.does:
            return "the script has process groups already"
        if not program.optimizers or not program.models:
            return "no module that torch.optim trains"
        return None

    def what(self, program: Program) -> str:
        return f"FSDP2 over {self.ranks} GPUs, the same batch on each; a rank of it was run alone"

    def how(self, program: Program) -> str:
        lines = ["from torch.distributed.fsdp import fully_shard", 'torch.distributed.init_process_group("nccl")']
        for blocks in program.blocks():
            lines += [f"for block in {blocks.name}:", "    fully_shard(block)"]
        lines += [f"fully_shard({name})  # before the optimizer is made" for name, _model in program.models]
        return "\n".join([*lines, f"# torchrun --nproc-per-node {self.ranks}"])

    def on_optimizer(self, program: Program, optimizer: Any) -> bool:
        # A model that is being called has begun without what sharding adds to it.
        from torch.distributed.fsdp import fully_shard

        distributed = program.torch.distributed
        found = models_of(program.torch, optimizer)
        if found and not distributed.is_initialized():
            distributed.init_process_group("nccl")
        for model in found:
            before = dict(model.named_parameters())
            for blocks in blocks_of(program.torch, "", model):
                for block in blocks.members:
                    fully_shard(block)
            fully_shard(model)
            shards = {id(before[path]): shard for path, shard in model.named_parameters() if path in before}
            for group in optimizer.param_groups:
                group["params"] = [shards.get(id(parameter), parameter) for parameter in group["params"]]
        return bool(found)


LEVERS: tuple[Lever, ...] = (
    Fused(),
    ForeachOff(),
    ZeroEarly(),
    Frozen(),
    ChunkedLoss(),
    StepInBackward(),
    Accumulate(),
    CheckpointSelective(),
    CheckpointSecond(),
    Checkpoint(),
    OffloadHalf(),
    Offload(),
    EightBit(),
    Autocast(),
    Bf16(),
    Sharded(2),
    Sharded(4),
    Sharded(8),
)
