"""A linear layer and its cross-entropy computed together, some rows at a time."""

from __future__ import annotations

import functools
from typing import Any, Callable

#: Pieces that the rows are computed in where PyTorch does not choose them.
_PIECES = 8


def chunked_loss(head: Any) -> None:
    """Have the logits of ``head``, a linear layer, never made whole: their cross-entropy is computed some rows at a time.

    What the layer gives can be viewed, sliced and handed to ``cross_entropy``; everything else makes the logits as ever.
    """
    head.forward = functools.partial(Logits, head=head)


class Logits:
    """The outputs of a linear layer, not computed: a cross-entropy of them is computed in pieces, all else makes them."""

    #: Told of each layer whose outputs go into a cross-entropy.
    on_loss: Callable[[Any], None] | None = None

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
        return Logits(self._hidden.reshape(*sizes[:-1], self._hidden.shape[-1]), self._head)

    reshape = view

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Any:
        """As of the tensor."""
        dims = len(self.shape)
        if end_dim % dims == dims - 1:
            return self._made().flatten(start_dim, end_dim)
        return Logits(self._hidden.flatten(start_dim, end_dim % dims), self._head)

    def __getitem__(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        is_whole = all(isinstance(part, slice) or part is Ellipsis for part in parts)
        if is_whole and (len(parts) < len(self.shape) and Ellipsis not in parts or parts[-1] == slice(None)):
            return Logits(self._hidden[index], self._head)
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
        options = dict(options or {})
        if function.__name__ == "cross_entropy":
            logits = arguments[0] if arguments else options.pop("input")
            target = arguments[1] if len(arguments) > 1 else options.pop("target")
            if isinstance(logits, cls) and len(logits.shape) == 2 and not target.is_floating_point() and len(arguments) <= 2:
                if cls.on_loss is not None:
                    cls.on_loss(logits._head)
                return _loss(logits._hidden, logits._head, target, options)
        made = [value._made() if isinstance(value, cls) else value for value in arguments]
        return function(*made, **{key: value._made() if isinstance(value, cls) else value for key, value in options.items()})


def _operator(name: str) -> Callable[..., Any]:
    return lambda logits, *others: getattr(logits._made(), name)(*others)


for _name in "add radd sub rsub mul rmul truediv rtruediv matmul pow neg eq ne lt le gt ge len iter".split():
    setattr(Logits, f"__{_name}__", _operator(f"__{_name}__"))


def _loss(hidden: Any, head: Any, target: Any, options: dict[str, Any]) -> Any:
    import torch

    functional = torch.nn.functional
    options = {key: value for key, value in options.items() if key not in ("size_average", "reduce")}
    is_autocast = torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu")
    if hasattr(functional, "linear_cross_entropy") and hasattr(torch.nn, "LinearCrossEntropyOptions") and not is_autocast:
        pieces = torch.nn.LinearCrossEntropyOptions()
        return functional.linear_cross_entropy(hidden, head.weight, target, linear_bias=head.bias, options=pieces, **options)
    from torch.utils.checkpoint import checkpoint

    reduction = options.pop("reduction", "mean")

    def piece(rows: Any, targets: Any) -> Any:
        return functional.cross_entropy(functional.linear(rows, head.weight, head.bias).float(), targets, reduction=kind, **options)

    kind = "none" if reduction == "none" else "sum"
    pairs = zip(hidden.chunk(_PIECES), target.chunk(_PIECES))
    losses = [checkpoint(piece, rows, targets, use_reentrant=False) for rows, targets in pairs]
    if reduction == "none":
        return torch.cat(losses)
    weight = options.get("weight")
    kept = target != options.get("ignore_index", -100)
    counted = kept.sum() if weight is None else weight[target.clamp(min=0)].mul(kept).sum()
    return sum(losses) / counted if reduction == "mean" else sum(losses)
