"""Decisions of well-known programs that depend on values, made in a dry run as a real run makes them."""

from __future__ import annotations

import functools
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import FrameType, ModuleType
from typing import Any, Callable, Iterator

from stalloc._common import imports
from stalloc._common.numbers import encode

#: Answers by the function that reads: (end of the file's path, function) to the answer's name, and a function of its
#: frame and the size that gives the bytes, or None where the function reads something else.
by_function: dict[tuple[str, str], tuple[str, Callable[[FrameType, int], bytes | None]]] = {}

#: The name of the answer that will take the place of what is read now.
replaced: ContextVar[str | None] = ContextVar("replaced", default=None)


def install() -> None:
    """Arrange for the decisions below, once the modules that make them are imported."""
    imports.after("megatron.core.optimizer.clip_grads", _clips_gradients)
    imports.after("megatron.core.transformer.moe.token_dispatcher", _routes_tokens)
    by_function["megatron/core/transformer/moe/moe_utils.py", "permute"] = "tokens to permute", _tokens_to_permute
    by_function["transformers/masking_utils.py", "find_packed_sequence_indices"] = "packed sequences", _one_sequence_per_row
    imports.after("transformers.generation.stopping_criteria", _generates_to_the_longest)
    imports.after("deepspeed.runtime.zero.utils", _agrees_with_other_ranks)


@contextmanager
def _replacing(name: str) -> Iterator[None]:
    """What is read in this block does not count: an answer called ``name`` is put in its place."""
    token = replaced.set(name)
    try:
        yield
    finally:
        replaced.reset(token)


def _one_sequence_per_row(_frame: FrameType, size: int) -> bytes:
    """Positions count up from zero, so no mask is built for packed sequences; that takes tensors all the same."""
    return encode([1], size)


def _generates_to_the_longest(stopping_criteria: ModuleType) -> None:
    """`generate` ends where its longest length says: no sequence ends by itself, and without an answer none would ever."""
    criteria = getattr(stopping_criteria, "StoppingCriteriaList", None)
    if criteria is None:
        return
    call = criteria.__call__
    is_over = False

    @functools.wraps(call)
    def called(self: Any, input_ids: Any, *args: Any, **options: Any) -> Any:
        nonlocal is_over
        is_over = any(input_ids.shape[-1] >= getattr(criterion, "max_length", float("inf")) for criterion in self)
        return call(self, input_ids, *args, **options)

    def over(_frame: FrameType, size: int) -> bytes | None:
        return encode([int(is_over)], size) if size == 1 else None  # larger: tokens, for a streamer

    def goes_on(_frame: FrameType, size: int) -> bytes | None:
        return encode([int(not is_over)], size) if size == 1 else None

    criteria.__call__ = called
    for function, answer in (("__call__", over), ("_has_unfinished_sequences", over), ("_beam_search", goes_on)):
        by_function["transformers/generation/utils.py", function] = "end of generation", answer


def _agrees_with_other_ranks(utils: ModuleType) -> None:
    """DeepSpeed compares lists with the first rank's, which other ranks do not receive in a dry run: they are taken to be the same."""
    for name in ("assert_ints_same_as_other_ranks", "assert_lst_len_same_as_other_ranks"):
        compare = getattr(utils, name, None)
        if compare is not None:
            setattr(utils, name, _without_complaint(compare))


def _without_complaint(compare: Callable[..., Any]) -> Callable[..., None]:
    @functools.wraps(compare)
    def compared(*args: Any, **options: Any) -> None:
        with suppress(RuntimeError):
            compare(*args, **options)

    return compared


def _clips_gradients(clip_grads: ModuleType) -> None:
    """Gradients of early steps are larger than what they are clipped to: they are scaled."""
    norm = getattr(clip_grads, "get_grad_norm_fp32", None)
    if norm is None:
        return

    @functools.wraps(norm)
    def large_norm(*args: Any, **options: Any) -> float:
        with _replacing("gradient norm"):
            norm(*args, **options)
        return 1e3

    clip_grads.get_grad_norm_fp32 = large_norm  # type: ignore[attr-defined]


def _tokens_to_permute(frame: FrameType, size: int) -> bytes:
    """`permute` selects as many rows as tokens were routed."""
    return encode([int(frame.f_locals["num_out_tokens"])], size)


def _routes_tokens(token_dispatcher: ModuleType) -> None:
    """Megatron's all-to-all dispatcher sends tokens to experts as random logits would.

    Experts have an equal chance, so counts differ between layers, micro-batches and steps as they do in life. The
    numbers come from PyTorch's generator of the host, whose state checkpointing keeps: recomputation routes as the
    forward pass did.
    """
    dispatcher = getattr(token_dispatcher, "MoEAlltoAllTokenDispatcher", None)
    if dispatcher is None:
        return
    preprocess = dispatcher.preprocess
    to_host = dispatcher._maybe_dtoh_and_synchronize

    def preprocess_and_count(self: Any, routing_map: Any) -> Any:
        self._stalloc_tokens = routing_map.shape[0]
        return preprocess(self, routing_map)

    def to_host_and_answer(self: Any, point: str, tokens_per_expert: Any = None) -> Any:
        if self.drop_and_pad or point != self.cuda_dtoh_point:
            return to_host(self, point, tokens_per_expert)
        with _replacing("tokens of experts"):
            tokens_per_expert = to_host(self, point, tokens_per_expert)
        ranks, own_rank, experts = self.tp_size * self.ep_size, self.tp_rank, self.num_local_experts
        first = self.local_expert_indices[0]
        counts = _routed(self._stalloc_tokens, self.config.moe_router_topk, self.num_experts, ranks)
        counts = counts.reshape(self.ep_size, self.tp_size, -1).transpose(0, 1)
        received = counts[:, :, first : first + experts]
        if ranks > 1:
            from_rank = received.sum(2)
            self.input_splits = counts[own_rank, first // experts].reshape(self.ep_size, -1).sum(1).numpy()
            self.output_splits = from_rank[own_rank].numpy()
            self.output_splits_tp = from_rank.sum(1).numpy()
        if experts > 1 and not self.config.moe_permute_fusion:
            self.num_global_tokens_per_local_expert = received.reshape(-1, experts)
        return received.sum((0, 1))

    dispatcher.preprocess = preprocess_and_count
    dispatcher._maybe_dtoh_and_synchronize = to_host_and_answer


def _routed(tokens: int, choices: int, experts: int, ranks: int) -> Any:
    """How many of each rank's tokens go to each expert: a table of ranks and experts.

    Each token goes to ``choices`` different experts, drawn by Floyd's algorithm for all tokens at once: a table of all logits
    would take a second for each layer of a large batch.
    """
    import torch

    with torch.device("cpu"):
        chosen: list[Any] = []
        for last in range(experts - choices, experts):
            expert = torch.randint(last + 1, (ranks, tokens))
            for other in list(chosen):
                expert = torch.where(other == expert, last, expert)
            chosen.append(expert)
        of_rank = torch.stack(chosen, 1).flatten(1) + experts * torch.arange(ranks).unsqueeze(1)
        return torch.bincount(of_rank.flatten(), minlength=ranks * experts).reshape(ranks, experts)
