"""An optimizer's states wait in host memory between steps, and come in for the update a piece at a time.

The step that the script calls finds no parameters: its hook before has made the update, by the optimizer's own step, of one piece after the
other. While one is updated, the next comes in and the one before leaves, each on a stream of its own.
"""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext
from typing import Any, Iterator

from stalloc._common.output import say

#: Smaller tensors stay, bytes: their copies would take longer to begin than to make. Made up.
LEAST = 1 << 20

#: A piece has at least so many bytes of states, or this part of all. Three pieces are on the device at once. Made up.
LEAST_PIECE, PART = 64 << 20, 16


class HostStates:
    """The states of one optimizer."""

    def __init__(self, optimizer: Any) -> None:
        import torch
        from torch.utils.weak import WeakIdKeyDictionary

        self._torch, self._optimizer = torch, optimizer
        #: Tensors that wait on the host.
        self._waiting: Any = WeakIdKeyDictionary()
        #: The script's groups, while its step has none of their parameters.
        self._groups: Any = None
        self._streams: Any = None
        self._is_pinned = True
        after = optimizer.register_step_post_hook(lambda *_about: self._stepped())
        optimizer._optimizer_step_post_hooks.move_to_end(after.id, last=False)  # hooks of others are to find the groups
        before = optimizer.register_step_pre_hook(lambda _optimizer, arguments, options: self._step(arguments, options))
        self._handles = [after, before, optimizer.register_load_state_dict_post_hook(lambda _optimizer: self._all_leave())]
        self._all_leave()

    def take_off(self) -> None:
        """The states are back where the script has them."""
        for handle in self._handles:
            handle.remove()
        self._arrived(self._coming(self._parameters()))

    def _parameters(self) -> list[Any]:
        return [p for group in self._optimizer.param_groups for p in group["params"]]

    def _states(self, parameters: list[Any]) -> Iterator[tuple[Any, Any, str, Any]]:
        """Each tensor of states: its parameter, the state that has it, by which name."""
        states = self._optimizer.state
        for p in parameters:
            for name, value in list(states[p].items()) if p in states else ():
                if type(value) is self._torch.Tensor:
                    yield p, states[p], name, value

    def _step(self, arguments: Any, options: Any) -> None:
        optimizer = self._optimizer
        if self._groups is not None:  # a step failed
            self._stepped()
        if any(argument is not None for argument in (*arguments[1:], options.get("closure"))):
            self._arrived(self._coming(self._parameters()))  # the closure may look at any of it
            return
        step = type(optimizer).step
        step = step.__wrapped__ if getattr(step, "hooked", False) else step
        groups, leaving = optimizer.param_groups, deque()  # type: Any, deque[Any]
        pieces = list(self._pieces())
        try:
            coming = self._coming(_of(pieces[0])) if pieces else None
            for piece, following in zip(pieces, [*pieces[1:], None]):
                came = self._arrived(coming)
                while len(leaving) > 1:
                    self._left(leaving.popleft())
                coming = self._coming(_of(following)) if following else None
                optimizer.param_groups = piece
                step(*arguments, **options)
                leaving.append(self._leaving(_of(piece), came))
        finally:
            optimizer.param_groups = groups
            for left in leaving:
                self._left(left, is_last=True)
        self._groups, optimizer.param_groups = groups, [group | {"params": []} for group in groups]

    def _stepped(self) -> None:
        if self._groups is None:
            self._all_leave()
            return
        self._optimizer.param_groups, self._groups = self._groups, None

    def _pieces(self) -> Iterator[list[Any]]:
        """Groups with some of their parameters each."""
        groups = self._optimizer.param_groups
        # Before the first step: as Adam has them.
        sizes = {p: sum(value.nbytes for *_, value in self._states([p])) or 2 * p.nbytes for p in self._parameters()}
        least = max(LEAST_PIECE, sum(sizes.values()) // PART)
        piece, size = [], 0  # type: list[Any], int
        for group in groups:
            piece.append(group | {"params": []})
            for p in group["params"]:
                if size and size + sizes[p] > least:
                    yield piece
                    piece, size = [group | {"params": []}], 0
                piece[-1]["params"].append(p)
                size += sizes[p]
        yield piece

    def _coming(self, parameters: list[Any]) -> Any:
        """States begin to come in: each with where it was, and an event behind the copies."""
        found = [(p, state, name, host) for p, state, name, host in self._states(parameters) if host in self._waiting]
        here = [(state, name, host, self._torch.empty_strided(host.shape, host.stride(), dtype=host.dtype, device=p.device)) for p, state, name, host in found]
        return here, self._copied([(new, host) for _, _, host, new in here], 0)

    def _arrived(self, coming: Any) -> dict[int, Any]:
        """The states that come are the optimizer's; where each was, by its identity."""
        here, event = coming
        if event is not None:
            self._torch.cuda.current_stream(here[0][3].device).wait_event(event)
        for state, name, _host, new in here:
            state[name] = new
        return {id(new): host for _, _, host, new in here}

    def _leaving(self, parameters: list[Any], came: dict[int, Any]) -> Any:
        """States begin to leave, to where they were: what must live until the copies are done, and an event behind them."""
        copies = []
        for p, state, name, value in self._states(parameters):
            is_whole = value.layout == self._torch.strided and value.untyped_storage().nbytes() == value.nbytes
            if value.device == p.device and value.nbytes >= LEAST and is_whole and value not in self._waiting:
                host = came.get(id(value))
                state[name] = host = self._on_host(value) if host is None else host
                self._waiting[host] = True
                copies.append((host, value))
        return copies, self._copied(copies, 1)

    def _left(self, leaving: Any, is_last: bool = False) -> None:
        """Their memory on the device is others' from here on; the last are on the host, where anybody may read them."""
        copies, event = leaving
        if event is not None:
            self._torch.cuda.current_stream(copies[0][1].device).wait_event(event)
            if is_last:
                event.synchronize()

    def _all_leave(self) -> None:
        self._left(self._leaving(self._parameters(), {}), is_last=True)

    def _copied(self, copies: list[tuple[Any, Any]], way: int) -> Any:
        """Copies on a stream of its own behind what was asked for so far; an event where there are streams."""
        torch = self._torch
        device = next((one.device for pair in copies for one in pair if one.is_cuda), None)
        if device is not None and self._streams is None:
            self._streams = torch.cuda.Stream(device), torch.cuda.Stream(device)
        stream = None if device is None else self._streams[way]
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream(device))
        with nullcontext() if stream is None else torch.cuda.stream(stream), torch.no_grad():
            for to, of in copies:
                to.copy_(of, non_blocking=True)
        return None if stream is None else stream.record_event()

    def _on_host(self, value: Any) -> Any:
        try:
            return self._torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, pin_memory=value.is_cuda and self._is_pinned)
        except RuntimeError as error:
            if not self._is_pinned or not value.is_cuda:
                raise
            self._is_pinned = False
            say(f"states_on_host: page-locked memory is refused ({str(error).splitlines()[0]}; ulimit -l?): copies are slower")
            return self._on_host(value)


def _of(piece: list[Any]) -> list[Any]:
    return [p for group in piece for p in group["params"]]
