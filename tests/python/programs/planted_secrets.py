"""Trains two steps and prints nothing of its own; its other words are somebody's secrets.

    planted_secrets.py [die|top|refuse] ...

die: runs out of memory after that; top: has `stalloc top` print this job; refuse: an error that names the words.
"""

import os
import subprocess
import sys

import torch

layer = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.AdamW(layer.parameters())
for _step in range(2):
    optimizer.zero_grad()
    layer(torch.ones(8, 256, device="cuda")).sum().backward()
    optimizer.step()
if sys.argv[1] == "top":
    subprocess.run([os.environ["STALLOC_COMMAND"], "top", "--once", str(os.getpid())], check=True)
if sys.argv[1] == "refuse":
    print("usage: planted_secrets.py\nplanted_secrets.py: error: unrecognized arguments:", *sys.argv[2:], file=sys.stderr)
    sys.exit(2)
kept = [torch.empty(64 << 20, device="cuda") for _ in range(100)] if sys.argv[1] == "die" else []
