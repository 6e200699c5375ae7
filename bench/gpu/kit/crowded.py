"""Runs a command while this process holds all of the GPU's memory but some.

    python crowded.py --leave-mib 14000 -- COMMAND
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

import torch

MIB = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--leave-mib", type=int, required=True)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    # Not by stalloc, whose variables are the command's.
    torch.cuda.init()
    free = torch.cuda.mem_get_info()[0] // MIB
    held = torch.cuda.caching_allocator_alloc(max(free - options.leave_mib, 1) * MIB)
    status = subprocess.run(command, env=dict(os.environ), check=False).returncode
    torch.cuda.caching_allocator_delete(held)
    sys.exit(status)


if __name__ == "__main__":
    main()
