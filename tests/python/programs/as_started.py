"""Says all that a program can know of its start, and ends as it is told: whatever went on from a copy must say and do the same."""

import ctypes
import os
import signal
import sys
import time

import __main__

print(sys.argv, __name__, __file__, __main__.__dict__ is globals(), os.getcwd(), os.path.basename(sys.path[0]), len(sys.path), sys.flags)
print(sys.orig_argv, sorted(name for name in os.environ if not name.startswith("WARM_")), sys.stdout.isatty(), "torch" in sys.modules, flush=True)
how = sys.argv[1]
if how == "reads":
    print(sys.stdin.read())
elif how == "raises":
    raise ValueError("what it raised")
elif how == "exits":
    sys.exit(7)
elif how == "prints":
    ctypes.CDLL(None).printf(b"kept by C until the end")
    sys.exit(3)
elif how == "says":
    sys.exit("why it ended")
elif how == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
elif how == "interrupted":
    os.kill(os.getpid(), signal.SIGINT)
elif how == "waits":
    print("ready", flush=True)
    while True:  # a signal right before `pause` would not end it
        time.sleep(0.05)
elif how == "tells":
    print(f"goes on from a copy: {hasattr(sys, 'warm')}")
elif how == "imports":
    import torch
    import torch.nn.functional as functional

    print(torch.__name__, torch.__spec__.name, functional.relu(torch.ones(2)), torch.nn.functional is functional, len(sys.modules) > 500)
print("the end")
