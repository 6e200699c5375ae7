"""Runs a program and writes down what each of its modules was given and gave: shapes, where a value decides what is done.

    python shapes.py FILE PROGRAM [ARGUMENT...]
"""

import runpy
import sys

import torch
from torch.nn.modules.module import register_module_forward_hook


def shape(value):
    """Of tensors their shapes; of what holds them those of its parts."""
    if isinstance(value, torch.Tensor):
        return "x".join(map(str, value.shape)) or "one"
    if isinstance(value, dict):
        return {name: shape(one) for name, one in value.items() if isinstance(one, (torch.Tensor, tuple, list, dict))}
    if isinstance(value, (tuple, list)):
        return [shape(one) for one in value]
    return type(value).__name__


file, sys.argv = sys.argv[1], sys.argv[2:]
with open(file, "w") as out:

    def wrote(module, given, options, gave):
        print(type(module).__name__, shape(given), shape(options), "->", shape(gave), file=out)

    register_module_forward_hook(wrote, with_kwargs=True)
    runpy.run_path(sys.argv[0], run_name="__main__")
