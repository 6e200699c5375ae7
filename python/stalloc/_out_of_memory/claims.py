"""Which block is whose: the first holder that claims it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Iterable

from stalloc._out_of_memory.kinds import Kind

#: Holders that are told of, and addresses of each.
MOST_HOLDERS = 24
MOST_ADDRESSES = 64
#: What a model and its training have.
OF_MODEL = (Kind.PARAMETERS, Kind.GRADIENTS, Kind.BUFFER, Kind.OPTIMIZER_STATES, Kind.OTHER_STATES, Kind.MODELS)


@dataclass
class Holder:
    """What holds some blocks."""

    kind: Kind
    name: str
    line: str | None = None
    addresses: list[int] = field(default_factory=list)
    #: Of graphs without a name: where the tensors lie that end them.
    ends: list[int] = field(default_factory=list)
    #: Bytes that the tensors themselves use: less than what they keep, where they are views.
    used: int = 0
    #: Whether it has one tensor for each object, so that it cannot grow while no objects are added.
    is_bounded: bool = False
    #: Whether it is many objects of one kind: what holds these objects has the better name.
    is_each: bool = False
    #: Whether it has things by a key.
    is_mapping: bool = False
    #: Whether it is a graph that ends in no parameter that an optimizer has.
    is_untrained: bool = False
    #: Whether it ends in an input too, by which is differentiated.
    is_of_input: bool = False
    #: The class of what is in it, where these are no tensors.
    content: str = ""
    #: The full name of the class that has it as an attribute.
    owner: str = ""


class Claims:
    """Which holder each block is of: the first that claims it."""

    def __init__(self, sizes: dict[int, int]) -> None:
        self.sizes = sizes
        self.of: dict[int, Holder] = {}
        self.holders: dict[tuple[Kind, str], Holder] = {}

    def claim(self, kind: Kind, name: str, addresses: Iterable[int], line: str | None = None) -> Holder | None:
        """Add blocks to a holder, those that have none yet; a dictionary has the bytes that are used of each."""
        free = [address for address in addresses if address in self.sizes and address not in self.of]
        if not free:
            return None
        holder = self.holders.setdefault((kind, name), Holder(kind, name, line))
        for address in free:
            if address not in self.of:
                self.of[address] = holder
                holder.addresses.append(address)
                holder.used += addresses[address] if isinstance(addresses, dict) else self.sizes[address]
        return holder

    def listed(self) -> list[dict[str, Any]]:
        """The largest holders, as they are written down."""
        size = self.sizes.__getitem__
        named = sorted(self.holders.values(), key=lambda one: -sum(map(size, one.addresses)))
        return [
            vars(one) | {"bytes": sum(map(size, one.addresses)), "tensors": len(one.addresses), "addresses": self._some(one.addresses)}
            for one in named[:MOST_HOLDERS]
        ]

    def _some(self, addresses: list[int]) -> list[int]:
        """The largest; of many that are equally large some evenly over all, so that they tell how long it took to fill."""
        least = sorted((self.sizes[one] for one in addresses), reverse=True)[:MOST_ADDRESSES][-1]
        large = [one for one in addresses if self.sizes[one] >= least]
        chosen = {large[i * len(large) // MOST_ADDRESSES] for i in range(MOST_ADDRESSES)}
        return sorted(chosen, key=self.sizes.__getitem__, reverse=True)
