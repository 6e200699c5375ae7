"""Numbers as a device would have them in memory."""

from __future__ import annotations

import struct
from typing import Sequence, Union

Number = Union[int, float, bool]

_INTEGERS = {1: "b", 2: "h", 4: "i", 8: "q"}
_FLOATS = {2: "bfloat16", 4: "f", 8: "d"}


def encode(numbers: Sequence[Number], size: int) -> bytes:
    """``numbers`` in ``size`` bytes; ValueError if they do not fill them."""
    width, rest = divmod(size, len(numbers))
    is_float = any(isinstance(number, float) for number in numbers)
    if rest or width not in (_FLOATS if is_float else _INTEGERS):
        raise ValueError(f"{len(numbers)} numbers do not fill the {size} bytes that are read")
    if is_float and width == 2:  # bfloat16: the upper half of a float32
        return b"".join(struct.pack("<f", number)[2:] for number in numbers)
    return struct.pack(f"<{len(numbers)}{(_FLOATS if is_float else _INTEGERS)[width]}", *numbers)
