"""Runs examples, or programs of this folder, one for each argument: in forked children, so that imports are paid for once."""

import importlib
import os
import sys
from pathlib import Path

import torch._dynamo  # noqa: F401  what optimizers import when they are made
import transformers.models.llama.modeling_llama  # noqa: F401

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))


def each(lines, run):
    """Call ``run(main, word)`` for each line `EXAMPLE[:WORD] OPTIONS...`, in a child of its own."""
    for line in lines:
        name, *options = line.split()
        name, _, word = name.partition(":")
        module = importlib.import_module(name)
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            sys.argv[1:] = options
            run(module.main, word)
            sys.exit()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(f"ended with {status}: {line}", flush=True)


if __name__ == "__main__":
    each(sys.argv[1:], lambda main, _word: main())
