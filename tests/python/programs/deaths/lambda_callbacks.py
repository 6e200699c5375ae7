"""Callbacks in a list, each with the outputs of its step as a default argument."""

import torch
from torch import nn

class Callbacks:
    def __init__(self):
        self.at_end = []
    def add(self, function):
        self.at_end.append(function)

def main():
    model = nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    callbacks = Callbacks()
    for step in range(2000):
        x = torch.randn(512, 1024, device="cuda")
        output = model(x)  # named
        output.mean().backward()
        sample = output.detach()
        callbacks.add(lambda sample=sample, step=step: print(step, sample.std().item()))
        optimizer.step()
        optimizer.zero_grad()

main()
