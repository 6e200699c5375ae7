"""A linear layer and its cross-entropy computed together, some rows at a time."""

from __future__ import annotations

from typing import Any, Callable

from stalloc._levers.applied import Applied, apply, owner_of

#: Pieces that the rows are computed in where PyTorch does not choose them.
_PIECES = 8


def chunked_loss(head: Any) -> None:
    """Have the logits of ``head``, a linear layer, never made whole: their cross-entropy is computed some rows at a time.

    What the layer gives can be viewed, sliced and handed to ``cross_entropy``; everything else makes the logits as ever.
    """
    apply(head, _lazily)
    _make_for_functions()


class _MakingLogits(classmethod):  # type: ignore[type-arg]
    """``apply`` of all functions, with logits made first."""


def _make_for_functions() -> None:
    """Have what is handed to a function with a backward pass of its own made first: it asks no argument what it is, so that one that is
    no tensor would get no gradient."""
    import torch

    Function = torch.autograd.Function
    own = vars(Function).get("apply")  # in some versions its base has it
    if isinstance(own, _MakingLogits):
        return

    def call(cls: Any, *arguments: Any, **options: Any) -> Any:
        before = super(Function, cls).apply if own is None else own.__get__(None, cls)
        return before(*map(_made_of, arguments), **{name: _made_of(value) for name, value in options.items()})

    Function.apply = _MakingLogits(call)


def _lazily(applied: Applied, arguments: Any, options: Any) -> Any:
    import torch

    head = owner_of(applied)
    if not (torch.is_grad_enabled() and head.training):
        return applied.__wrapped__(*arguments, **options)
    return Logits(arguments[0] if arguments else options["input"], head)


class Logits:
    """The outputs of a linear layer, not computed: a cross-entropy of them is computed in pieces, all else makes them.

    The dimension of the classes is the last, or the second after ``transpose(1, 2)``, as a cross-entropy wants it.
    """

    #: Told of each layer whose outputs go into a cross-entropy.
    on_loss: Callable[[Any], None] | None = None

    def __init__(self, hidden: Any, head: Any, is_moved: bool = False) -> None:
        self._hidden, self._head, self._is_moved = hidden, head, is_moved

    @property
    def shape(self) -> Any:
        """As of the tensor."""
        sizes = [*self._hidden.shape[:-1], self._head.out_features]
        if self._is_moved:
            sizes.insert(1, sizes.pop())
        return type(self._hidden.shape)(sizes)

    def size(self, dim: int | None = None) -> Any:
        """As of the tensor."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """As of the tensor."""
        return len(self.shape)

    ndim = property(dim)

    def numel(self) -> int:
        """As of the tensor."""
        return int(self.shape.numel())

    def transpose(self, first: int, second: int) -> Any:
        """As of the tensor: rows and classes of a batch change places."""
        dims = self.dim()
        if dims == 3 and {first % dims, second % dims} == {1, 2}:
            return Logits(self._hidden, self._head, not self._is_moved)
        return self._made().transpose(first, second)

    def permute(self, *dims: Any) -> Any:
        """As of the tensor; of ``(0, 2, 1)`` as a transposition."""
        order = tuple(dims[0] if len(dims) == 1 and not isinstance(dims[0], int) else dims)
        return self.transpose(1, 2) if order in ((0, 2, 1), (0, -1, 1), (0, -1, -2)) else self._made().permute(order)

    def view(self, *shape: Any) -> Any:
        """As of the tensor; of its last dimension as it is."""
        sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        is_whole = len(sizes) > 1 and (sizes[-1] == self._head.out_features or (sizes[-1] == -1 and -1 not in sizes[:-1]))
        if not is_whole or self._is_moved:
            return self._made().reshape(*shape)
        return Logits(self._hidden.reshape(*sizes[:-1], self._hidden.shape[-1]), self._head)

    reshape = view

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Any:
        """As of the tensor."""
        dims = self.dim()
        if end_dim % dims == dims - 1 or self._is_moved:
            return self._made().flatten(start_dim, end_dim)
        return Logits(self._hidden.flatten(start_dim, end_dim % dims), self._head)

    def __getitem__(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        is_whole = all(isinstance(part, slice) or part is Ellipsis for part in parts) and not self._is_moved
        if is_whole and (len(parts) < self.dim() and Ellipsis not in parts or parts[-1] == slice(None)):
            return Logits(self._hidden[index], self._head)
        return self._made()[index]

    def _itself(self, *_arguments: Any, **_options: Any) -> Any:
        return self

    contiguous = _itself

    def float(self) -> Any:
        """As of the tensor: a cross-entropy of the pieces is computed in 32 bits anyway."""
        return self

    def to(self, *arguments: Any, **options: Any) -> Any:
        """As of the tensor; to the type or the device that it has, or to 32 bits, itself."""
        import torch

        is_same = all(one in (torch.float32, self._hidden.dtype) or torch.device(one) == self._hidden.device for one in arguments if not isinstance(one, bool))
        return self if is_same and not options else self._made().to(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        if name in ("device", "dtype", "is_cuda", "requires_grad"):
            return getattr(self._hidden, name)
        return getattr(self._made(), name)

    def _made(self) -> Any:
        import torch

        made = torch.nn.functional.linear(self._hidden, self._head.weight, self._head.bias)
        return made.transpose(1, 2) if self._is_moved else made

    @classmethod
    def __torch_function__(cls, function: Any, _types: Any, arguments: Any = (), options: Any = None) -> Any:
        options = dict(options or {})
        if function.__name__ == "cross_entropy":
            logits = arguments[0] if arguments else options.pop("input")
            target = arguments[1] if len(arguments) > 1 else options.pop("target")
            is_old = any(options.pop(name, None) is not None for name in ("size_average", "reduce"))
            if isinstance(logits, cls) and not is_old and not target.is_floating_point() and len(arguments) <= 2 and (logits._is_moved or logits.dim() == 2):
                if cls.on_loss is not None:
                    cls.on_loss(logits._head)
                loss = _loss(logits._hidden.flatten(0, -2), logits._head, target.flatten(), options)
                return loss.reshape(target.shape) if options.get("reduction") == "none" else loss
            arguments, options = (logits, target, *arguments[2:]), options
        return function(*map(_made_of, arguments), **{key: _made_of(value) for key, value in options.items()})


def _made_of(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(map(_made_of, value)) if type(value) in (list, tuple) else value
    return value._made() if isinstance(value, Logits) else value


def _operator(name: str) -> Callable[..., Any]:
    return lambda logits, *others: getattr(logits._made(), name)(*others)


for _name in "add radd sub rsub mul rmul truediv rtruediv matmul pow neg eq ne lt le gt ge len iter".split():
    setattr(Logits, f"__{_name}__", _operator(f"__{_name}__"))


def _loss(hidden: Any, head: Any, target: Any, options: dict[str, Any]) -> Any:
    import torch

    functional = torch.nn.functional
    is_autocast = torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu")
    is_in_torch = hasattr(functional, "linear_cross_entropy") and hasattr(torch.nn, "LinearCrossEntropyOptions")
    if is_in_torch and not is_autocast and not options.get("label_smoothing") and target.dtype == torch.int64:
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
