"""Objects that refer to themselves through a bound method, while Python's garbage collector is off."""

import gc
import torch
from torch import nn

class Context:
    def __init__(self, batch):
        self.batch = batch
        self.cleanup = self.close
    def close(self):
        self.batch = None

def main():
    net = nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    gc.disable()
    for step in range(400):
        context = Context(torch.randn(2048, 1024, device="cuda"))  # named
        net(context.batch).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

main()
