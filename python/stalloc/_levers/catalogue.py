"""The levers: what each needs of a program, and the lines that do it, which call :mod:`stalloc._levers.applied`.

A trial runs the lines that are printed, so that the program asks for the same memory once they are written into it.
"""

from __future__ import annotations

from typing import Any

from stalloc import _native
from stalloc._levers import applied, host_states, spill as spilling
from stalloc._levers.applied import called
from stalloc._levers.chunked_loss import Logits, chunked_loss
from stalloc._levers.rehearsal import Rehearsal
from stalloc._levers.spill import Spiller, spill
from stalloc._levers.program import Blocks, Names, Program, blocks_of, models_of, widening, written


#: Why a lever is not tried, by what the program does or lacks.
REASONS = {
    "compile": "the script is compiled: its compiler decides what is kept (torch._functorch.config.activation_memory_budget)",
    "checkpoint": "the script checkpoints already",
    "no blocks": "no repeated blocks: no ModuleList, ModuleDict or Sequential of equal modules is called for training",
    "no model": "no module is called for training",
    "no optimizer": "no optimizer of torch.optim",
    "own optimizer": "the script's optimizer is none that updates each parameter by itself",
    "hooked optimizer": "the script's own hooks of the optimizer may need the gradients",
    "clip": "the script clips gradients or changes them before the step, which needs all of them at once",
    "late options": "the script sets options of the optimizer (lr...) between the backward pass and the step",
    "scaler": "the script scales gradients, which looks at all of them before the step",
    "several backwards": "the script calls backward several times for a step",
    "retains": "the script goes through a graph twice (retain_graph), which selective checkpoints do not allow",
    "double backward": "the script differentiates gradients (create_graph), which a loss in pieces does not allow",
    "cells": "a block has a cell of torch.nn (GRUCell...), which on the CPU changes in place what its products gave",
    "several optimizers": "the script has several optimizers: a backward pass for one reaches parameters of another",
    "later optimizer": "the script makes another optimizer after its first forward pass",
    "shared parameters": "a parameter has two optimizers, which both need its gradient",
    "compiles": "the script compiles functions, which may hold the step",
    "captured": "the script's optimizer is made for CUDA graphs (capturable), which need its states at one address",
    "closure": "the script hands step() a closure, which computes gradients there",
    "gradients gone": "gradients are gone already when the forward pass begins",
    "keeps gradients": "the script does not free gradients between two steps",
    "zeros": "the script sets gradients to zero and keeps them (set_to_none=False), so parameters without a new one are updated too",
    "own zeroing": "the script frees gradients without the optimizer (model.zero_grad() or p.grad = None), which would drop the first half",
    "schedule": "the script's schedule would advance with each half of a batch",
    "autocast": "the script uses autocast already",
    "16 bits": "the weights have 16 bits already",
    "no logits": "no cross-entropy of what a linear layer gave",
    "distributed": "the script has process groups already",
    "before reduction": "the script has process groups, which reduce gradients after the backward pass has made them",
    "unused parameters": "DDP with find_unused_parameters looks for tensors in what the model returns",
    "no own": "the script saves no memory by checkpoints or hooks of its own",
    "trainer": "transformers' Trainer has options of its own for this (fsdp, deepspeed), which are not tried",
}


#: In place of a line of the program.
UNPLACED = "nowhere: no line of the script has names for all of it"


class Lever:
    """One lever. A method called ``on_...`` applies it when the program has come that far, and says whether it did."""

    name: str
    #: Words; levers that share one take the place of each other.
    group: str
    #: What becomes of the numbers: ``same``, ``rounding`` (sums in another order), ``change``.
    numerics = "same"
    #: The option of transformers' TrainingArguments that does it, and its value.
    flag: tuple[str, Any] | None = None
    #: What its lines are about: names of the ``models``, of the ``optimizers``, or of ``both``.
    about = "models"
    #: Whether it is applied once, when all that it is about is there.
    is_once = False

    #: What it does, in a few words, and what of a program is a reason not to try it, by :data:`REASONS`.
    does = ""
    refused_by: tuple[str, ...] = ()

    def what(self, program: Program) -> str:
        """What it does to this program, in a few words."""
        return self.does

    def lines(self, program: Program, models: list[tuple[str, Any]], optimizers: list[str]) -> list[str]:
        """The lines that do it to some models, in Python."""
        raise NotImplementedError

    def why_not(self, program: Program) -> str | None:
        """Why it is not to be tried; None: it is."""
        facts = program.facts()
        return next((REASONS[fact] for fact in self.refused_by if fact in facts), None)

    def flag_of(self, _arguments: Any) -> tuple[str, Any] | None:
        """The option of such arguments, and its value."""
        return self.flag

    def _written(self, program: Program, names: Names, models: list[Any]) -> str:
        named = [(name, model) for name, model in zip(names.models, program.models) if any(model is one for one in models)]
        lines = self.lines(program, named, names.optimizers)
        return "\n".join([*(["import stalloc"] if any("stalloc." in line for line in lines) else []), *lines])

    def how(self, program: Program) -> tuple[str, str]:
        """The lines, and where they stand."""
        flag = self.flag_of(program.arguments) if program.arguments is not None else None
        if flag is not None:
            call, (name, value) = program.arguments_at, flag
            unknown = f"{type(program.arguments).__name__}(..., {name}={value!r})"
            return (call.with_option(name, repr(value)), call.where) if call and not call.has_options_elsewhere else (unknown, UNPLACED)
        names = program.names.get(self.about) or Names([], [])
        return self._written(program, names, program.models), names.place or UNPLACED

    def found(self, program: Program) -> dict[str, Any]:
        """All that is said of it."""
        why_not = self.why_not(program)
        flagged = program.arguments is not None and self.flag_of(program.arguments) is not None
        is_named = self.about in ("models", "before") or (program.names.get(self.about) or Names([], [])).place
        if why_not is None and program.arguments is not None and not flagged and not is_named:
            why_not = "transformers' Trainer makes the optimizer itself, and has no option for it"
        how, where = ("", "") if why_not else self.how(program)
        said = {"name": self.name, "what": "" if why_not else self.what(program), "how": how, "where": where}
        return said | {"numerics": self.numerics, "group": self.group, "why_not": why_not}

    def told(self, words: str) -> Lever:
        """The lever with what a trial tells it after its name."""
        return self

    def stepped(self) -> None:
        """The program's first optimizer has stepped."""

    def on_optimizer(self, program: Program, optimizer: Any) -> bool:
        """An optimizer was made."""
        return False

    def on_model(self, program: Program, name: str, model: Any) -> bool:
        """A model is called for training for the first time; None: all were, before there was an optimizer."""
        names = program.names[self.about]
        lines = self._written(program, names, program.models if self.is_once or model is None else [model])
        program.execute(lines, names)
        return bool(lines)


class _OfBlocks(Lever):
    """One that changes how repeated blocks are called."""

    group = "activations"
    refused_by: tuple[str, ...] = ("compile", "no blocks")
    #: Whether it computes blocks for a second time.
    is_recomputed = True
    #: Which of the blocks, as a slice is written; ``N`` is half of them.
    part = ""
    call: str

    def why_not(self, program: Program) -> str | None:
        why_not = super().why_not(program)
        if why_not is None and self.is_recomputed:
            if "checkpoint" in program.does and program.blocks_at_once < 2:
                return REASONS["checkpoint"]
            return next(filter(None, program.calls.values()), None)
        return why_not

    def what(self, program: Program) -> str:
        parts = " and ".join(f"{b.count(self._slice(b))} of {b.count()} blocks of {b.name}" for b in program.blocks())
        own = f"; the script's own checkpoint computes {program.blocks_at_once} of them again at once" if "checkpoint" in program.does else ""
        return f"{self.does}: {parts}{own if self.is_recomputed else ''}"

    def lines(self, program: Program, models: list[tuple[str, Any]], optimizers: list[str]) -> list[str]:
        lines = []
        for name, model in models:
            known = program.blocks() if program.calls else program.blocks_of(name, model)
            lists = [b for b in known if b.name.startswith(name) and b.name[len(name) :][:1] in ("", ".", "[")]
            lines += [self.call.replace("BLOCKS", f"*{b.as_list}{self.part.replace('N', str(len(b.members) // 2))}") for b in lists]
            # A language model of transformers appends keys and values, and would a second time; its decoder may have a copy of the settings.
            parts = [(path, getattr(part, "config", None)) for path, part in model.named_modules()] if lines and self.is_recomputed else []
            caching = {id(config): path for path, config in reversed(parts) if getattr(config, "use_cache", None) is True}
            lines += [f"{name}{written(program.torch, model, path)}.config.use_cache = False" for path in reversed(caching.values())]
        return lines

    def on_model(self, program: Program, name: str, model: Any) -> bool:
        peers = program.peers(model)
        if peers:
            call = self.call.replace("BLOCKS", f"*peers{self.part.replace('N', str(len(peers) // 2))}")
            program.execute(f"import stalloc\n{call}", Names([], []), peers=peers)
        return super().on_model(program, name, model) or bool(peers)

    def _slice(self, blocks: Blocks) -> slice:
        return slice(None, len(blocks.members) // 2) if "N" in self.part else slice(None, None, 2 if self.part else 1)


class Checkpoint(_OfBlocks):
    """Each repeated block keeps its input alone, and computes the rest again in the backward pass."""

    name = "checkpoint"
    does = "activations are computed again in the backward pass"
    call = "stalloc.apply.checkpoint(BLOCKS)"


class CheckpointSecond(_OfBlocks):
    """The same for every second block: half of the saving at half of the cost."""

    name = "checkpoint_every_second"
    part = "[::2]"
    does, call = Checkpoint.does, Checkpoint.call


class CheckpointSelective(_OfBlocks):
    """Each block keeps what its products gave, and computes the cheap rest again."""

    name = "checkpoint_keep_matmuls"
    refused_by = (*_OfBlocks.refused_by, "retains", "double backward", "cells")
    does = "all but what matrix products gave is computed again in the backward pass"
    call = "stalloc.apply.checkpoint(BLOCKS, keep_matmuls=True)"


class Offload(Lever):
    """What the forward pass of a model saves waits in host memory."""

    name = "offload"
    does = "saved tensors of the forward pass wait in host memory"
    refused_by: tuple[str, ...] = ("compile", "no model")
    group = "activations copies"
    call = "offload"

    def lines(self, program: Program, models: list[tuple[str, Any]], optimizers: list[str]) -> list[str]:
        return [f"stalloc.apply.{self.call}({name})" for name, _model in models]


class OffloadHalf(_OfBlocks):
    """The first half of the blocks alone: their saved tensors live longest across the peak."""

    name = "offload_first_half"
    group = "activations copies"
    part = "[:N]"
    is_recomputed = False
    does = "saved tensors wait in host memory"
    call = "stalloc.apply.offload(BLOCKS)"


class Spill(Lever):
    """Saved tensors wait in host memory across the peak, by a plan that a trial makes of its own steps."""

    name = "spill"
    does = "saved tensors wait in host memory across the peak, by a plan"
    refused_by = ("compile", "no model")
    group = "copies"

    def __init__(self, words: str = "", plan: dict[str, Any] | None = None) -> None:
        self._words, self._plan = words, plan
        self.rehearsal: Rehearsal | None = None
        self._spiller: Spiller | None = None

    def told(self, words: str) -> Spill:
        return Spill(words)

    def how(self, program: Program) -> tuple[str, str]:
        return "stalloc run --fit -- COMMAND", "nowhere in the script, as its plan is of one step"

    def on_model(self, program: Program, name: str, model: Any) -> bool:
        if self._spiller is None:
            self.rehearsal = Rehearsal(self._words) if self._plan is None else None
            self._spiller = self.rehearsal or Spiller(self._plan or {})
            if self.rehearsal is None:
                self._spiller.insure()
        spill(model, self._spiller, len(program.models) - 1)
        return True

    def stepped(self) -> None:
        if self._spiller is not None:
            self._spiller.stepped()


class WithoutOwn(Lever):
    """The script without its own checkpoints and hooks of saved tensors, which shows what they save: :class:`Observed` leaves them out."""

    name = group = "without_own"
    refused_by = ("no own",)

    def what(self, program: Program) -> str:
        own = {"checkpoint": "checkpoint", "hooks": "offload (hooks of saved tensors)"}
        return f"the script's own {' and '.join(word for fact, word in own.items() if fact in program.does)}"

    def how(self, program: Program) -> tuple[str, str]:
        return "", "nowhere: it is tried to see what they save"

    def on_model(self, program: Program, name: str, model: Any) -> bool:
        return True


class _OfOptimizer(Lever):
    """An option of PyTorch's optimizers."""

    group = "optimizer"
    about = "optimizers"
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
        call = program.made_at
        if call is None or call.has_options_elsewhere or len(program.optimizers) > 1 or program.arguments is not None:
            return super().how(program)
        return call.with_option(self.option, str(self.value)), call.where

    def lines(self, program: Program, models: list[tuple[str, Any]], optimizers: list[str]) -> list[str]:
        return [f"stalloc.apply.{self.name}({n})" for n, optimizer in zip(optimizers, program.optimizers) if self.takes(optimizer)]

    def on_model(self, program: Program, name: str, model: Any) -> bool:
        # The model may move to the device after the optimizer was made: the states are made in the first step.
        taking = [optimizer for optimizer in program.optimizers if self.takes(optimizer)]
        for optimizer in taking:
            getattr(applied, self.name)(optimizer)
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
    numerics = "rounding"
    option, value = "fused", True
    flag = ("optim", "adamw_torch_fused")

    def takes(self, optimizer: Any) -> bool:
        group = optimizer.param_groups[0]
        is_possible = all(p.is_floating_point() and p.device.type in ("cuda", "cpu") for group in optimizer.param_groups for p in group["params"])
        return is_possible and "fused" in group and not group["fused"] and not group.get("differentiable") and group.get("foreach") is not True


class _OfStep(Lever):
    """One that calls a function of its name with each optimizer."""

    about = "optimizers"
    is_once = True

    def lines(self, program: Program, models: list[tuple[str, Any]], optimizers: list[str]) -> list[str]:
        return [f"stalloc.apply.{self.name}({name})" for name in optimizers]


class StepInBackward(_OfStep):
    """Each parameter is updated as soon as its gradient is there, which goes then."""

    name = "step_in_backward"
    does = "each parameter is updated in the backward pass, and its gradient freed"
    refused_by = (
        *("no optimizer", "own optimizer", "hooked optimizer", "closure", "scaler", "clip", "several backwards", "several optimizers"),
        *("later optimizer", "before reduction", "keeps gradients", "zeros", "late options"),
    )
    group = "step"


class ZeroEarly(_OfStep):
    """Gradients go right after the step, and do not wait for the next backward pass."""

    name = "zero_grad_early"
    does = "gradients are freed right after the step, not after the next forward pass"
    refused_by = ("no optimizer", "gradients gone", "keeps gradients", "zeros", "closure", "hooked optimizer", "shared parameters")
    group = "zero"


class StatesOnHost(_OfStep):
    """The optimizer's states are on the device during its step alone, a piece at a time."""

    name = "states_on_host"
    refused_by = ("no optimizer", "own optimizer", "hooked optimizer", "closure", "later optimizer", "compiles", "captured")
    group = "states step"

    def _bytes(self, program: Program) -> int:
        states = [value for o in program.optimizers for state in o.state.values() for value in state.values()]
        return sum(value.nbytes for value in states if type(value) is program.torch.Tensor and value.nbytes >= host_states.LEAST)

    def why_not(self, program: Program) -> str | None:
        size, left = self._bytes(program), spilling.host_memory()
        if size > left:
            return f"the states have {_native.format_bytes(size)}, and the host has {_native.format_bytes(left)} for them"
        return super().why_not(program) or (None if size else "the optimizer has no states that are worth copying")

    def what(self, program: Program) -> str:
        return f"{_native.format_bytes(self._bytes(program))} of optimizer states wait in host memory between steps"


class Frozen(Lever):
    """Parameters that no optimizer updates need no gradients."""

    name = "no_unused_gradients"
    group = "frozen"
    about = "both"
    # The norm that clips counts gradients of parameters that nobody updates, and DDP waits for them.
    refused_by = ("no optimizer", "later optimizer", "clip", "distributed")

    def _unused(self, program: Program) -> list[Any]:
        trained = program.trained()
        return [p for model in program.models for p in model.parameters() if p.requires_grad and id(p) not in trained]

    def why_not(self, program: Program) -> str | None:
        return super().why_not(program) or (None if self._unused(program) else "every parameter with a gradient is trained")

    def what(self, program: Program) -> str:
        return f"{len(self._unused(program))} parameters that no optimizer updates have no gradients"

    def lines(self, program: Program, models: list[tuple[str, Any]], optimizers: list[str]) -> list[str]:
        return [f"stalloc.apply.no_unused_gradients({', '.join([name, *optimizers])})" for name, _model in models]

    def on_optimizer(self, program: Program, optimizer: Any) -> bool:
        for model in program.models:  # it may train what nobody trained before
            applied.undo(model, self.name)
        return False


class Autocast(Offload):
    """Operations of the forward pass in 16 bits where PyTorch takes that to be safe."""

    name = call = "autocast_bf16"
    does = "the forward pass under autocast to bf16"
    refused_by: tuple[str, ...] = ("autocast", "compile", "no model", "16 bits")
    group = "precision"
    numerics = "change"
    flag: tuple[str, Any] | None = ("bf16", True)


class Bf16(Autocast):
    """Weights, gradients and the optimizer's states in 16 bits."""

    name = call = "weights_bf16"
    refused_by = (*Autocast.refused_by, "distributed")  # DDP made its buckets for 32 bits: ranks would end with different weights
    does = "weights, gradients and optimizer states in bf16"
    flag = None


class Accumulate(_OfStep):
    """Half of the micro-batch, and a step for two of them."""

    name = "accumulate"
    does = "half of the micro-batch, with a step for every second one"
    refused_by = ("no optimizer", "scaler", "clip", "closure", "several backwards", "several optimizers", "later optimizer", "own zeroing", "schedule")
    group = "batch"
    # Means, dropout and BatchNorm are of half a batch.
    numerics = "change"

    def flag_of(self, arguments: Any) -> tuple[str, Any] | None:
        return "gradient_accumulation_steps", 2 * getattr(arguments, "gradient_accumulation_steps", 1)


class ChunkedLoss(Lever):
    """The last layer and its cross-entropy are computed together, some rows at a time: the logits are never whole."""

    name = "chunked_loss"
    refused_by = ("no logits", "unused parameters", "double backward")
    group = "loss"
    numerics = "rounding"

    def why_not(self, program: Program) -> str | None:
        return super().why_not(program) or (REASONS["compile"] if id(program.head) in program.compiled else None)

    def what(self, program: Program) -> str:
        head = program.head
        return f"{program.name_of(head)} ({head.in_features} to {head.out_features}) and its cross-entropy in pieces"

    def lines(self, program: Program, models: list[tuple[str, Any]], optimizers: list[str]) -> list[str]:
        return [f"stalloc.chunked_loss({program.name_of(program.head)})"] if program.head is not None else []

    def on_model(self, program: Program, name: str, model: Any) -> bool:
        # Which layer it is shows in the first loss: until then every one that may be is asked.
        asked = [module for module in widening(program.torch, model) if id(module) not in program.compiled]
        for module in asked:
            chunked_loss(module)

        def found(head: Any) -> None:
            for module in asked:
                if module is not head:
                    applied.take_off(module)
            asked.clear()

        Logits.on_loss = found
        return bool(asked)


class Sharded(Lever):
    """Parameters, gradients and states over several GPUs, of which one rank is run alone."""

    group = "sharding"
    refused_by = ("trainer", "compile", "distributed", "no optimizer", "no model", "several optimizers")
    numerics = "rounding"
    about = "before"

    def __init__(self, ranks: int) -> None:
        self.name = f"fsdp2_over_{ranks}"
        self.ranks = ranks

    def what(self, program: Program) -> str:
        return f"FSDP2 over {self.ranks} GPUs, the same batch on each; a rank of it was run alone"

    def lines(self, program: Program, models: list[tuple[str, Any]], optimizers: list[str]) -> list[str]:
        # The model may be on the first GPU by now: it is sharded to the one that is set.
        lines = [
            "import torch.distributed",
            "from torch.distributed.fsdp import fully_shard",
            f'torch.distributed.init_process_group("nccl")  # torchrun --nproc-per-node {self.ranks}',
            "torch.cuda.set_device(torch.distributed.get_node_local_rank())",
        ]
        for name, model in models:
            for blocks in blocks_of(program.torch, name, model):
                is_nested = blocks.count() != len(blocks.members) or isinstance(blocks.members[0], program.torch.nn.ModuleList)
                loop = [f"for group in {blocks.as_list}:", "    for block in group:", "        fully_shard(block)"]
                lines += loop if is_nested else [f"for block in {blocks.as_list}:", "    fully_shard(block)"]
        return [*lines, *(f"fully_shard({name})" for name, _model in models)]

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
                for block in called(blocks.members):
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
    Spill(),
    OffloadHalf(),
    Offload(),
    StatesOnHost(),
    WithoutOwn(),
    Autocast(),
    Bf16(),
    Sharded(2),
    Sharded(4),
    Sharded(8),
)


def chosen_of(names: str) -> list[Lever]:
    """The levers that are named, separated by commas, each with what it is told after a colon."""
    told = dict(name.partition(":")[::2] for name in names.split(","))
    return [lever.told(told[lever.name]) for lever in LEVERS if lever.name in told]
