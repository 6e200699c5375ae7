"""With no collector of circles at work: what a function made on the device is gone when it returns, whatever a dry run looked at meanwhile."""

import gc

import torch

gc.disable()
values = torch.rand(1000).to("cuda")


def number():
    mine = values + 1
    return mine.sum().item()


def numbers():
    mine = values * 2
    return mine.tolist()


def guess():
    mine = values[torch.rand(1000, device="cuda") > values]
    return mine.topk(3)[1].tolist()


def refused_by_the_host():
    mine = torch.arange(8).to("cuda")
    return mine[torch.tensor([9]).to("cuda")]


def counted():
    mine = torch.arange(-8, 8).to("cuda")
    return mine[mine > 0].nonzero().tolist(), mine.unique().tolist()


def large():
    mine = torch.arange(4000).to("cuda")
    return (mine[:, None] > mine[None, :]).sum().item()


def backward():
    mine = torch.nn.Linear(8, 8).cuda()
    mine(values[:8]).sum().backward()
    return torch.nn.utils.clip_grad_norm_(mine.parameters(), 1.0).item()


for function in (number, numbers, guess, refused_by_the_host, counted, large, backward):
    function()  # what is kept from then on, as workspaces
    before = torch.cuda.memory_allocated()
    function()
    print(function.__name__, torch.cuda.memory_allocated() - before, flush=True)
