"""A thread brings batches to the GPU as fast as it can; the queue between it and the training has no bound."""
import queue
import threading
import time
import torch
from torch import nn

waiting = queue.Queue()
failures = []

def fetch():
    try:
        for _ in range(400):
            waiting.put(torch.randn(256, 4096).to("cuda"))  # named
            time.sleep(0.002)
    except torch.OutOfMemoryError as error:
        failures.append(error)  # else the training would wait for its next batch for ever

net = nn.Linear(4096, 256).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
thread = threading.Thread(target=fetch, daemon=True)
thread.start()
for step in range(400):
    if failures:
        raise failures[0]
    net(waiting.get()).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.05)
    torch.empty(1 << 20, device="cuda")
