"""Runs a program and prints, at the end, how many blocks the stand-in heard of and in how many places the order was wrong."""

import ctypes
import json
import runpy
import sys


def order() -> dict[str, int]:
    library = ctypes.CDLL(None)
    library.stalloc_dryrun_summary.restype = ctypes.c_size_t
    text = ctypes.create_string_buffer(1 << 20)
    library.stalloc_dryrun_summary(text, ctypes.c_size_t(len(text)))
    return json.loads(text.value)["order"]


if __name__ == "__main__":
    program, *sys.argv[1:] = sys.argv[1:]
    sys.argv[0] = program
    sys.path[0] = str(program).rpartition("/")[0]
    try:
        runpy.run_path(program, run_name="__main__")
    finally:
        import torch

        torch.cuda.empty_cache()
        print(json.dumps({"order": order()}), flush=True)
