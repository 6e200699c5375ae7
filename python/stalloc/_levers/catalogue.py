"""The levers, each by PyTorch's public means: what it needs of a program, and the lines that do it.

A trial runs the lines that are printed, so that the program asks for the same memory once they are written into it.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from stalloc._levers.chunked_loss import Logits, chunked_loss
from stalloc._levers.program import Blocks, Program, blocks_of, models_of, widening, written


#: Why a lever is not tried, by what the program does or lacks.
REASONS = {
    "compile": "the script is compiled: its compiler decides what is kept (torch._functorch.config.activation_memory_budget)",
    "checkpoint": "the script checkpoints already",
    "no blocks": "no repeated blocks: no ModuleList or Sequential of equal modules is called for training",
    "no model": "no module is called for training",
    "no optimizer": "no optimizer of torch.optim",
    "clip": "the script clips gradients, which needs all of them at once",
    "scaler": "the script scales gradients, which looks at all of them before the step",
    "several backwards": "the script calls backward several times for a step",
    "gradients gone": "gradients are gone already when the forward pass begins",
    "autocast": "the script uses autocast already",
    "16 bits": "the weights have 16 bits already",
    "no logits": "no cross-entropy of what a linear layer gave",
    "distributed": "the script has process groups already",
    "trainer": "transformers' Trainer has options of its own for this (fsdp, deepspeed), which are not tried",
}


class Lever:
    """One lever. A method called ``on_...`` applies it when the program has come that far, and says whether it did."""

    name: str
    #: Levers of one group take the place of each other.
    group: str
    #: What becomes of the numbers: ``same``, ``rounding`` (sums in another order), ``change``.
    numerics = "same"
    #: The option of transformers' TrainingArguments that does it, and its value.
    flag: tuple[str, Any] | None = None
    #: Whether its lines are about the optimizer, which transformers' Trainer makes for itself.
    needs_optimizer = False
    #: Whether its lines stand before the optimizer is made, not after it.
    is_before = False
    #: Whether its lines are for all models at once.
    is_once = False

    #: What it does, in a few words, and what of a program is a reason not to try it, by :data:`REASONS`.
    does = ""
    refused_by: tuple[str, ...] = ()

    def what(self, program: Program) -> str:
        """What it does to this program, in a few words."""
        return self.does

    def lines(self, program: Program, models: list[tuple[str, Any]]) -> str:
        """The lines that do it to some models, in Python."""
        raise NotImplementedError

    def why_not(self, program: Program) -> str | None:
        """Why it is not to be tried; None: it is."""
        facts = program.facts()
        return next((REASONS[fact] for fact in self.refused_by if fact in facts), None)

    def flag_of(self, _arguments: Any) -> tuple[str, Any] | None:
        """The option of such arguments, and its value."""
        return self.flag

    def how(self, program: Program) -> tuple[str, str]:
        """The lines, and where they stand."""
        flag = self.flag_of(program.arguments) if program.arguments is not None else None
        if flag is not None:
            call, (name, value) = program.arguments_at, flag
            unknown = f"{type(program.arguments).__name__}(..., {name}={value!r})"
            return call.with_option(name, repr(value)) if call else unknown, call.where if call else ""
        lines = self.lines(program, program.made_as if self.is_before else program.models)
        if not program.has_torch and any("torch." in line and not line.startswith("from ") for line in lines.splitlines()):
            lines = f"import torch\n{lines}"
        if program.arguments is not None:
            return lines, "before the trainer is made"
        made = program.made_at
        if self.is_before:
            return lines, f"before {made.before_parameters(program.made_as[0][0]) if made else 'the optimizer is made'}"
        unknown = "the optimizer is made" if program.optimizers else "the model is made"
        return lines, program.place or f"after {made.where if made else unknown}"

    def found(self, program: Program) -> dict[str, Any]:
        """All that is said of it."""
        why_not = self.why_not(program)
        flagged = program.arguments is not None and self.flag_of(program.arguments) is not None
        if why_not is None and self.needs_optimizer and program.arguments is not None and not flagged:
            why_not = "transformers' Trainer makes the optimizer itself, and has no option for it"
        how, where = ("", "") if why_not else self.how(program)
        said = {"name": self.name, "what": "" if why_not else self.what(program), "how": how, "where": where}
        return said | {"numerics": self.numerics, "group": self.group, "why_not": why_not}

    def on_torch(self, program: Program) -> bool:
        """PyTorch has been imported."""
        return False

    def on_optimizer(self, program: Program, optimizer: Any) -> bool:
        """An optimizer was made."""
        return False

    def on_model(self, program: Program, name: str, model: Any) -> bool:
        """A model is called for training for the first time."""
        if (self.is_once and len(program.models) > 1) or self.why_not(program) is not None:
            return False
        lines = self.lines(program, [(name, model)])
        program.execute(lines)
        return bool(lines)


_OFFLOADED = """\
from functools import wraps
def offloaded(forward):
    @wraps(forward)
    def called(*arguments, **options):
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            return forward(*arguments, **options)
    return called"""


class _OfBlocks(Lever):
    """One that changes how repeated blocks are called."""

    group = "activations"
    refused_by = ("checkpoint", "compile", "no blocks")
    #: Which of the blocks, as a slice is written.
    part = ""
    #: What the lines begin with, and how they call a block.
    first_lines: str
    written: str

    def what(self, program: Program) -> str:
        return f"{self.does}: " + " and ".join(f"{self._chosen(b)} of {len(b.members)} blocks of {b.name}" for b in program.blocks())

    def lines(self, program: Program, models: list[tuple[str, Any]]) -> str:
        lines = []
        for name, model in models:
            for blocks in blocks_of(program.torch, name, model):
                part = self.part.replace("N", str(len(blocks.members) // 2))
                lines += [f"for block in {blocks.name}{part}:", f"    block.forward = {self.written}"]
            # A language model of transformers appends keys and values, and would a second time; its decoder may have a copy of the settings.
            parts = [(path, getattr(part, "config", None)) for path, part in model.named_modules()] if lines else []
            caching = {id(config): path for path, config in reversed(parts) if getattr(config, "use_cache", None) is True}
            lines += [f"{name}{written(path)}.config.use_cache = False" for path in reversed(caching.values())]
        return "\n".join([self.first_lines, *lines] if lines else [])

    def _chosen(self, blocks: Blocks) -> int:
        if not self.part:
            return len(blocks.members)
        return len(blocks.members[::2]) if self.part == "[::2]" else len(blocks.members) // 2


class Checkpoint(_OfBlocks):
    """Each repeated block keeps its input alone, and computes the rest again in the backward pass."""

    name = "checkpoint"
    first_lines = "from functools import partial\nfrom torch.utils.checkpoint import checkpoint"
    does = "activations are computed again in the backward pass"
    written = "partial(checkpoint, block.forward, use_reentrant=False)"

    def flag_of(self, arguments: Any) -> tuple[str, Any] | None:
        is_renamed = hasattr(arguments, "activation_checkpointing")
        return "activation_checkpointing" if is_renamed else "gradient_checkpointing", True


class CheckpointSecond(_OfBlocks):
    """The same for every second block: half of the saving at half of the cost."""

    name = "checkpoint_every_second"
    part = "[::2]"
    first_lines, does, written = Checkpoint.first_lines, Checkpoint.does, Checkpoint.written


class CheckpointSelective(_OfBlocks):
    """Each block keeps what its products gave, and computes the cheap rest again."""

    name = "checkpoint_keep_matmuls"
    first_lines = """\
from functools import partial
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
kept = [getattr(torch.ops.aten, name).default for name in "mm addmm bmm baddbmm convolution _scaled_dot_product_flash_attention \\
_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention".split()]
contexts = partial(create_selective_checkpoint_contexts, kept)"""
    does = "all but what matrix products gave is computed again in the backward pass"
    written = "partial(checkpoint, block.forward, use_reentrant=False, context_fn=contexts)"


class Offload(Lever):
    """What the forward pass of a model saves waits in host memory."""

    name = "offload"
    does = "saved tensors of the forward pass wait in host memory"
    refused_by = ("compile", "no model")
    group = "activations"

    def lines(self, program: Program, models: list[tuple[str, Any]]) -> str:
        # Hooks, since a trainer may replace `forward` when it is made (TRL's of GRPO).
        lines = ["saving = torch.autograd.graph.save_on_cpu(pin_memory=True)"]
        for name, _model in models:
            lines.append(f"{name}.register_forward_pre_hook(lambda *_: saving.__enter__())")
            lines.append(f"{name}.register_forward_hook(lambda *_: saving.__exit__(), always_call=True)")
        return "\n".join(lines)


class OffloadHalf(_OfBlocks):
    """The first half of the blocks alone: their saved tensors live longest across the peak."""

    name = "offload_first_half"
    part = "[:N]"
    first_lines = _OFFLOADED
    does = "saved tensors wait in host memory"
    written = "offloaded(block.forward)"


class _OfOptimizer(Lever):
    """An option of PyTorch's optimizers."""

    group = "optimizer"
    needs_optimizer = True
    refused_by = ("no optimizer",)
    option: str
    value: bool

    def takes(self, optimizer: Any) -> bool:
        """Whether an optimizer has the option and does not use it."""
        raise NotImplementedError

    def _names(self, program: Program) -> list[str]:
        return sorted({type(optimizer).__name__ for optimizer in program.optimizers if self.takes(optimizer)})

    def why_not(self, program: Program) -> str | None:
        if not program.optimizers or self._names(program):
            return super().why_not(program)
        kind, group = type(program.optimizers[0]).__name__, program.optimizers[0].param_groups[0]
        if group.get("fused"):
            return f"the script's {kind} is fused already, which needs less or the same"
        return f"{kind} has no option {self.option}" if self.option not in group else f"{kind} has {self.option}={group[self.option]}"

    def what(self, program: Program) -> str:
        return f"{' and '.join(self._names(program))} with {self.option}={self.value}"

    def how(self, program: Program) -> tuple[str, str]:
        if program.made_at is None or len(program.optimizers) > 1 or program.arguments is not None:
            return super().how(program)
        return program.made_at.with_option(self.option, str(self.value)), program.made_at.where

    def lines(self, program: Program, models: list[tuple[str, Any]]) -> str:
        return "\n".join(f"optimizer = torch.optim.{name}(..., {self.option}={self.value})" for name in self._names(program))

    def on_model(self, program: Program, name: str, model: Any) -> bool:
        # The model may move to the device after the optimizer was made: the states are made in the first step.
        taking = [optimizer for optimizer in program.optimizers if self.takes(optimizer)]
        for optimizer in taking:
            for group in (optimizer.defaults, *optimizer.param_groups):
                group["foreach"], group[self.option] = False, self.value
            if self.option == "fused":
                optimizer._step_supports_amp_scaling = True
        return bool(taking)


class ForeachOff(_OfOptimizer):
    """The optimizer updates one parameter after the other: no temporary copies of all of them."""

    name = "foreach_off"
    option, value = "foreach", False

    def takes(self, optimizer: Any) -> bool:
        group = optimizer.param_groups[0]
        return "foreach" in group and group["foreach"] is not False and not group.get("fused")


class Fused(_OfOptimizer):
    """The optimizer updates all parameters in one kernel: no temporary copies either, and faster."""

    name = "fused"
    option, value = "fused", True
    flag = ("optim", "adamw_torch_fused")

    def takes(self, optimizer: Any) -> bool:
        group = optimizer.param_groups[0]
        is_possible = all(p.is_floating_point() and p.is_cuda for group in optimizer.param_groups for p in group["params"])
        return is_possible and "fused" in group and not group["fused"] and not group.get("differentiable") and group.get("foreach") is not True


class EightBit(Lever):
    """The optimizer's states have 8 bits."""

    name = "optimizer_8bit"
    group = "optimizer"
    numerics = "change"
    flag = ("optim", "adamw_bnb_8bit")
    needs_optimizer = True
    does = "Adam's states in 8 bits (bitsandbytes)"
    _kinds = ("AdamW", "Adam")

    def why_not(self, program: Program) -> str | None:
        if importlib.util.find_spec("bitsandbytes") is None:
            return "bitsandbytes is not installed"
        if not any(type(optimizer) in self._torch(program) for optimizer in program.optimizers):
            return "no Adam or AdamW of torch.optim"
        return None

    def _torch(self, program: Program) -> list[Any]:
        return [getattr(program.torch.optim, kind) for kind in self._kinds]

    def lines(self, program: Program, models: list[tuple[str, Any]]) -> str:
        found = zip(program.optimizer_names, program.optimizers)
        made = [f"{n} = bitsandbytes.optim.{type(o).__name__}8bit({n}.param_groups)" for n, o in found if type(o) in self._torch(program)]
        return "\n".join(["import bitsandbytes", *made])

    def on_torch(self, program: Program) -> bool:
        if importlib.util.find_spec("bitsandbytes") is None:
            return False

        def replaced(kind: str, original: Any) -> Any:
            class Made(original):  # type: ignore[misc]  # a class, since libraries have some of their own of it
                def __new__(this, *arguments: Any, **options: Any) -> Any:
                    if this is not Made:
                        return super().__new__(this)
                    import bitsandbytes

                    program.is_ours = True
                    groups = original(*arguments, **options).param_groups
                    program.is_ours = False
                    return getattr(bitsandbytes.optim, f"{kind}8bit")(groups)

            return Made

        for kind in self._kinds:
            setattr(program.torch.optim, kind, replaced(kind, getattr(program.torch.optim, kind)))
        return True


class StepInBackward(Lever):
    """Each parameter is updated as soon as its gradient is there, which goes then."""

    name = "step_in_backward"
    does = "each parameter is updated in the backward pass, and its gradient freed"
    refused_by = ("no optimizer", "clip", "scaler", "several backwards")
    group = "step"
    needs_optimizer = True
    is_once = True

    def lines(self, program: Program, models: list[tuple[str, Any]]) -> str:
        return f"""\
own = {{}}  # {" and ".join(program.optimizer_names)}.step() stays where it is, and finds nothing to do
for made in [{", ".join(program.optimizer_names)}]:
    for group in made.param_groups:
        own.update((p, (group, type(made)([{{**group, "params": [p]}}]))) for p in group["params"] if p.requires_grad)
def step_now(p):
    group, of_p = own[p]
    of_p.param_groups[0]["lr"] = group["lr"]  # as a scheduler has it
    of_p.step()
    of_p.zero_grad()
for p in own:
    p.register_post_accumulate_grad_hook(step_now)"""


class ZeroEarly(Lever):
    """Gradients go right after the step, and do not wait for the next backward pass."""

    name = "zero_grad_early"
    does = "gradients are freed right after the step, not after the next forward pass"
    refused_by = ("no optimizer", "gradients gone")
    group = "zero"
    needs_optimizer = True

    def lines(self, program: Program, models: list[tuple[str, Any]]) -> str:
        return "\n".join(f"{name}.register_step_post_hook(lambda made, *_: made.zero_grad())" for name in program.optimizer_names)

    def on_model(self, program: Program, name: str, model: Any) -> bool:
        if len(program.models) == 1:
            program.execute(self.lines(program, program.models))
        return bool(program.optimizers)


class Frozen(Lever):
    """Parameters that no optimizer updates need no gradients."""

    name = "no_unused_gradients"
    group = "frozen"
    refused_by = ("no optimizer",)
    needs_optimizer = True

    def _unused(self, program: Program) -> list[Any]:
        trained = program.trained()
        return [p for _name, model in program.models for p in model.parameters() if p.requires_grad and id(p) not in trained]

    def why_not(self, program: Program) -> str | None:
        return super().why_not(program) or (None if self._unused(program) else "every parameter with a gradient is trained")

    def what(self, program: Program) -> str:
        return f"{len(self._unused(program))} parameters that no optimizer updates have no gradients"

    def lines(self, program: Program, models: list[tuple[str, Any]]) -> str:
        lines = [f'trained = {{p for made in [{", ".join(program.optimizer_names)}] for group in made.param_groups for p in group["params"]}}']
        for name, _model in models:
            lines += [f"for p in {name}.parameters():", "    p.requires_grad_(p in trained)"]
        return "\n".join(lines)


class Autocast(Lever):
    """Operations of the forward pass in 16 bits where PyTorch takes that to be safe."""

    name = "autocast_bf16"
    does = "the forward pass under autocast to bf16"
    refused_by = ("autocast", "compile", "no model", "16 bits")
    group = "precision"
    numerics = "change"
    flag: tuple[str, Any] | None = ("bf16", True)

    def lines(self, program: Program, models: list[tuple[str, Any]]) -> str:
        return "\n".join(f'{name}.forward = torch.autocast("cuda", torch.bfloat16)({name}.forward)' for name, _model in models)


class Bf16(Autocast):
    """Weights, gradients and the optimizer's states in 16 bits."""

    name = "weights_bf16"
    does = "weights, gradients and optimizer states in bf16"
    flag = None

    def lines(self, program: Program, models: list[tuple[str, Any]]) -> str:
        lines = """\
def narrow(value):
    return value.to(torch.bfloat16) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
def inputs(_model, arguments, options):
    return tuple(map(narrow, arguments)), {name: narrow(value) for name, value in options.items()}"""
        return "\n".join(
            [lines, *(f"{name}.to(torch.bfloat16).register_forward_pre_hook(inputs, with_kwargs=True)" for name, _model in models)]
        )


class Accumulate(Lever):
    """Half of the micro-batch, and a step for two of them."""

    name = "accumulate"
    does = "half of the micro-batch, with a step for every second one"
    refused_by = ("no optimizer",)
    group = "batch"
    numerics = "rounding"
    needs_optimizer = True
    is_once = True

    def flag_of(self, arguments: Any) -> tuple[str, Any] | None:
        return "gradient_accumulation_steps", 2 * getattr(arguments, "gradient_accumulation_steps", 1)

    def lines(self, program: Program, models: list[tuple[str, Any]]) -> str:
        clips = "  # clip gradients in every second call alone, too" if "clip" in program.does else ""
        return f"""\
from types import MethodType
def every_second(made, step, zero_grad):{clips}
    halves = []
    def second_step(made, *arguments, **options):
        halves.append(None)
        if len(halves) % 2 == 0:
            for p in (p for group in made.param_groups for p in group["params"] if p.grad is not None):
                p.grad /= 2
            return step(*arguments, **options)
    made.step = MethodType(second_step, made)
    made.zero_grad = lambda *arguments, **options: None if len(halves) % 2 else zero_grad(*arguments, **options)
for made in [{", ".join(program.optimizer_names)}]:
    every_second(made, made.step, made.zero_grad)"""


class ChunkedLoss(Lever):
    """The last layer and its cross-entropy are computed together, some rows at a time: the logits are never whole."""

    name = "chunked_loss"
    refused_by = ("compile", "no logits")
    group = "loss"
    numerics = "rounding"

    def what(self, program: Program) -> str:
        name, head = program.head or ("", None)
        return f"{name} ({head.in_features} to {head.out_features}) and its cross-entropy in pieces"  # type: ignore[union-attr]

    def lines(self, program: Program, models: list[tuple[str, Any]]) -> str:
        return f"import stalloc\nstalloc.chunked_loss({program.head[0]})" if program.head else ""

    def on_model(self, program: Program, name: str, model: Any) -> bool:
        # Which layer it is shows in the first loss: until then every one that may be is asked.
        asked = {module: module.forward for module in widening(program.torch, model)}
        for module in asked:
            chunked_loss(module)

        def found(head: Any) -> None:
            for module, forward in asked.items():
                if module is not head:
                    module.forward = forward
            asked.clear()

        Logits.on_loss = found
        return bool(asked)


class Sharded(Lever):
    """Parameters, gradients and states over several GPUs, of which one rank is run alone."""

    group = "sharding"
    refused_by = ("trainer", "compile", "distributed", "no optimizer", "no model")
    numerics = "rounding"
    is_before = True

    def __init__(self, ranks: int) -> None:
        self.name = f"fsdp2_over_{ranks}"
        self.ranks = ranks

    def what(self, program: Program) -> str:
        return f"FSDP2 over {self.ranks} GPUs, the same batch on each; a rank of it was run alone"

    def lines(self, program: Program, models: list[tuple[str, Any]]) -> str:
        lines = ["from torch.distributed.fsdp import fully_shard", f'torch.distributed.init_process_group("nccl")  # torchrun --nproc-per-node {self.ranks}']
        # The model may be on the first GPU by now: it is sharded to the one that is set.
        lines.append("torch.cuda.set_device(torch.distributed.get_node_local_rank())")
        for name, model in models:
            for blocks in blocks_of(program.torch, name, model):
                lines += [f"for block in {blocks.name}:", "    fully_shard(block)"]
        return "\n".join([*lines, *(f"fully_shard({name})" for name, _model in models)])

    def on_model(self, program: Program, name: str, model: Any) -> bool:
        return False

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
