"""Runs programs of this folder and of `deaths`, each in a process of its own that is forked once PyTorch has been imported.

    all_of_them.py [--snapshots FOLDER] NAME...

Each is a rank, so that `stalloc trace` writes a trace for each. With --snapshots PyTorch's memory history is on, and what it
holds when a program has ended, or has run out of memory, is written to FOLDER/NAME.pickle, as PyTorch's own example does.
Where STALLOC_OUT_OF_MEMORY is set, an error leaves the program as it would leave one that runs alone.
"""

import gc
import os
import runpy
import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent


def run(name: str, rank: int, folder: str | None) -> None:
    os.environ["RANK"] = str(rank)
    if folder is not None:
        torch.cuda.memory._record_memory_history()
        write = lambda *_: torch.cuda.memory._dump_snapshot(f"{folder}/{name}.pickle")  # noqa: E731
        torch._C._cuda_attach_out_of_memory_observer(write)
    try:
        file = HERE / f"{name}.py"
        runpy.run_path(str(file if file.exists() else HERE.parent / "deaths" / f"{name}.py"), run_name="__main__")
    except RuntimeError as error:
        if "out of memory" not in str(error):
            raise
        print(f"{name}: out of memory", flush=True)
        if os.environ.get("STALLOC_OUT_OF_MEMORY"):
            sys.excepthook(*sys.exc_info())
    else:
        print(f"{name}: done", flush=True)
        if folder is not None:
            write()


def main() -> None:
    names = sys.argv[1:]
    folder = None
    if names[0] == "--snapshots":
        folder, names = names[1], names[2:]
    # What PyTorch made as it was imported is garbage in no program, and no program collects it anew.
    gc.freeze()
    for rank, name in enumerate(names):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                run(name, rank, folder)
                status = 0
            finally:
                sys.stdout.flush()
                if status:
                    import traceback

                    traceback.print_exc()
                sys.exit(status)
        assert os.waitpid(child, 0)[1] == 0, name


if __name__ == "__main__":
    main()
