"""Meta-learning: the outer gradient goes through all steps of the inner loop, and there are many."""
import torch
from torch import nn
from torch.func import functional_call

net = nn.Sequential(nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 1024)).cuda()
optimizer = torch.optim.Adam(net.parameters())

def adapt(weights, x, steps):
    for _ in range(steps):
        loss = functional_call(net, weights, x).square().mean()
        gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        weights = {name: weight - 0.1 * one for (name, weight), one in zip(weights.items(), gradients)}  # named
    return weights

for task in range(5):
    x = torch.randn(256, 1024, device="cuda")
    weights = adapt(dict(net.named_parameters()), x, 120)
    functional_call(net, weights, x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
