"""What a program is told in a dry run, where values are not computed and other ranks may not exist.

The same whether it is recorded or served: a program that takes another way than it was recorded on leaves its plan.
"""

from __future__ import annotations

import functools
import os
import sys

from stalloc._record import alone, imports, known, reads
from stalloc._record.answers import Answers
from stalloc._record.output import say


@functools.cache  # once: what is replaced twice would answer twice
def prepare() -> None:
    """PyTorch has been imported. Outside a dry run this does nothing, unless one rank is run without the others.

    Modules that were imported before keep what they took from the ones that are changed here.
    """
    is_dry = bool(os.environ.get("STALLOC_DRYRUN_GPU"))
    if is_dry or os.environ.get("STALLOC_TRACE_ALONE"):
        imports.after("torch.distributed", alone.install)
    if not is_dry:
        return
    try:
        answers = Answers.of_environment()
    except (OSError, ValueError) as error:
        say(f"an answer makes no sense: {error}")
        sys.exit(2)
    reads.listen(answers)
    known.install()
