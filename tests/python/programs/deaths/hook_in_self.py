"""A hook that keeps the outputs of layers in a dictionary of its object."""

import torch
from torch import nn

class ActivationRecorder:
    def __init__(self, model):
        self.activations = {}
        for name, module in model.named_modules():
            if isinstance(module, nn.Linear):
                self.activations[name] = []
                module.register_forward_hook(self.make_hook(name))

    def make_hook(self, name):
        def hook(module, inputs, output):
            self.activations[name].append(output.detach())
        return hook

model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024)).cuda()
recorder = ActivationRecorder(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1000):
    x = torch.randn(512, 1024, device="cuda")
    model(x).mean().backward()  # named
    optimizer.step()
    optimizer.zero_grad()
