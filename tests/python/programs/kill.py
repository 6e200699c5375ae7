"""Trains for a while, a step every tenth of a second, and kills itself without warning."""

import os
import signal
import time

import torch

model = torch.nn.Linear(64, 64, device="cuda")
optimizer = torch.optim.SGD(model.parameters())
for _ in range(25):
    model(torch.ones(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    print("step", flush=True)
    time.sleep(0.1)
os.kill(os.getpid(), signal.SIGKILL)
