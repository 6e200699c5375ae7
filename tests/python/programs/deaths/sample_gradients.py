"""Gradients of each sample by vmap: as many copies of the gradient as the batch has samples."""
import torch
from torch.func import functional_call, grad, vmap

net = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.Tanh(), torch.nn.Linear(1024, 1024)).cuda()
parameters = {name: value.detach() for name, value in net.named_parameters()}


def loss(parameters, x):
    return functional_call(net, parameters, (x[None],)).square().mean()


for batch in [16, 16, 128]:
    gradients = vmap(grad(loss), (None, 0))(parameters, torch.randn(batch, 1024, device="cuda"))  # named
    norms = {name: g.flatten(1).norm(dim=1) for name, g in gradients.items()}
