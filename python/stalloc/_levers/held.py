"""What tells who holds a trial's peak: where tensors of each kind lie, and when the backward pass and the optimizer's step begin and end."""

from __future__ import annotations

from typing import Any, Iterable

from stalloc._levers.program import Program
from stalloc._steps.marks import phase


class Held:
    """Addresses by the names of the report's categories."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        #: Of each step of an optimizer.
        self._gradients: list[list[int]] = []
        #: Every optimizer that stepped, the levers' own too.
        self._stepping: dict[int, Any] = {}

    def step_begins(self, program: Program, optimizer: Any) -> None:
        """An optimizer is about to step."""
        self._stepping[id(optimizer)] = optimizer
        if any(optimizer is other for other in program.optimizers):
            phase("optimizer", len(self._gradients))
            self._gradients.append(self._places(p.grad for group in optimizer.param_groups for p in group["params"]))

    def places(self, program: Program) -> dict[str, Any]:
        """Where they lie, at the end of a step."""
        weights = [p for model in program.models for p in (*model.parameters(), *model.buffers())]
        states = [value for optimizer in self._stepping.values() for state in optimizer.state.values() for value in state.values()]
        found = {"gradients": (p.grad for p in weights if p.is_leaf), "optimizer states": states, "parameters": weights}
        return {"kept": {name: self._places(tensors) for name, tensors in found.items()}, "gradients": self._gradients}

    def _places(self, tensors: Iterable[Any]) -> list[int]:
        local = (getattr(tensor, "_local_tensor", tensor) for tensor in tensors)  # of a sharded one what this rank has
        dense = (t._values() if isinstance(t, self._torch.Tensor) and t.is_sparse else t for t in local)
        return sorted({t.untyped_storage().data_ptr() for t in dense if isinstance(t, self._torch.Tensor) and t.is_cuda})
