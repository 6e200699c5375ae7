"""Trains small models on the CPU with what they save spilled, by plans that are theirs and by others; prints the losses and weights as JSON."""

import copy
import json
import os
import sys

import torch
from torch import nn

from stalloc._levers import applied, fitting, spill
from stalloc._levers.program import Program
from stalloc._levers.rehearsal import Rehearsal
from stalloc._levers.spill import Spiller

spill.LEAST = 1
torch.set_num_threads(1)  # copies of this process have no others


class Net(nn.Module):
    def __init__(self, width=8, layers=4):
        super().__init__()
        self.width = width
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.convolved = nn.Conv1d(2, 2, 3, padding=1)

    def forward(self, x):
        for layer in self.layers:
            y = layer(x)
            # Two operations save views of one storage; a mean that is expanded saves strides of 0.
            x = x + torch.sin(y.T).T * y[:, :1] + (y * y.mean(0, keepdim=True).expand_as(y)).relu_()
        return self.convolved(x.view(-1, 2, x.shape[1] // 2).transpose(0, 0)).square().mean()


def trained(spiller, model=None, sizes=(6, 6, 6, 6), retains=False):
    """Losses and weights after some steps, of batches with so many rows."""
    torch.manual_seed(0)
    model = model or Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    if spiller is not None:
        spill.spill(model, spiller)
    losses = []
    for size in sizes:
        loss = model(torch.randn(size, model.width))
        if retains:
            loss.backward(retain_graph=True)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if isinstance(spiller, Rehearsal):
            spiller.stepped()
    applied.take_off(model)
    return [losses, [p.flatten().tolist() for p in model.parameters()]]


def wrong(plan):
    """Plans that are damaged: other places on the host, all in one; fetched before they are released; other sizes; other kinds."""
    one_place, sizes, early, mixed = (copy.deepcopy(plan) for _ in range(4))
    one_place["victims"] = [(size, 0) for size, _ in plan["victims"]]
    sizes["victims"] = [(size + 4, offset) for size, offset in plan["victims"]]
    (first, number, acts), = plan["calls"]
    early["calls"] = [(first, number, [(*act[:3], {1: 2, 2: 1}.get(act[3], 0), act[4]) for act in acts])]
    mixed["calls"] = [(first, number, [(*act[:4], len(plan["victims"]) - 1 - act[4]) for act in acts])]
    other_call = plan | {"calls": [(first, number + 1, acts)]}
    return [one_place, sizes, early, mixed, other_call]


class Skips(spill.Away):
    """Copies nothing out."""

    def __init__(self, torch, storage, device, host, streams):
        host = torch.zeros_like(host)
        super().__init__(torch, storage, device, host, streams)
        host.zero_()


rehearsal = Rehearsal()
found = {"as it is": trained(None), "rehearsed": trained(rehearsal), "what": rehearsal.what}
plan = json.loads(json.dumps(rehearsal.plan))
spiller = Spiller(plan)
found["planned"] = trained(spiller)
found["spilled"] = sum(one is not None for one in spiller._lying)
found["twice"] = [trained(None, retains=True), trained(Spiller(plan), retains=True)]
found["another batch"] = [trained(None, sizes=(6, 3, 6, 5)), trained(Spiller(plan), sizes=(6, 3, 6, 5))]
torch.manual_seed(1)
wide = Net(12)
found["another model"] = [trained(None, copy.deepcopy(wide)), trained(Spiller(plan), wide)]
try:
    Spiller(plan | {"host": plan["host"] // 2})
except ValueError as error:
    found["outside"] = str(error)
found["damaged"] = [trained(Spiller(one)) for one in wrong(plan)]
with torch.autograd.graph.saved_tensors_hooks(lambda tensor: (hooked.append(1), tensor)[1], lambda tensor: tensor):
    hooked = []
    found["own hooks"] = trained(Spiller(plan))
found["hooked"] = len(hooked)


def told(plan, models):
    """Values and lines of a job that is told this, in a copy of this process."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.dup2(writing, 2)
        os.environ["STALLOC_FIT"] = json.dumps({"levers": ["spill"], "models": models, "peak": 0, "spill": plan})
        fitting.start(torch)
        values = trained(None)
        os.write(writing, json.dumps(values).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        *lines, values = said.read().splitlines()
    os.wait()
    return [json.loads(values), [line for line in lines if "--fit: after" not in line]]


class Full(nn.Module):
    """A layer, in front of which memory runs out, and in the backward pass through it once more."""

    def __init__(self, layer, spiller):
        super().__init__()
        self.layer, self.spiller = layer, spiller

    def forward(self, x):
        self.relieve()
        y = self.layer(x)
        y.register_hook(self.relieve)
        return y

    def relieve(self, *_gradient):
        if self.spiller is not None:
            self.went.append(self.spiller.relieve(None))


def insured(plan):
    """Values where memory runs out sixteen times, how often something went, and how many that the plan has not."""
    spiller, Full.went = plan and Spiller(plan), []
    torch.manual_seed(0)
    model = Net()
    model.layers = nn.ModuleList(Full(layer, spiller) if index % 2 else layer for index, layer in enumerate(model.layers))
    if plan:
        spiller.is_insured = True
    values = trained(spiller, model)
    return [values, sum(Full.went), plan and len(spiller._places) - len(plan["victims"])]


few = plan | {"calls": [(first, number, acts[:3]) for first, number, acts in plan["calls"]]}
found["insured"] = [insured(one) for one in (None, plan, few, wrong(plan)[0])]

mine = [Program(torch).signature(Net())]
first, number, acts = plan["calls"][0]
wrong_plans = {
    "as it is": plan,
    "empty": {},
    "kinds": plan | {"kinds": ["torch.nonsense"]},
    "types": plan | {"victims": "none"},
    "acts": plan | {"calls": [[first, number, [[9, *acts[0][1:]]]]]},
    "victims": plan | {"calls": [[first, number, [[*acts[0][:4], 999]]]]},
    "host": plan | {"host": 1 << 60},
    "another script's": plan | {"calls": [[first + 1, number, acts]]},
}
found["told"] = {what: told(one, mine) for what, one in wrong_plans.items()}
found["told"]["another model's"] = told(plan, ["0" * 16])
spill.Away = Skips
found["skipped copy, insured"] = insured(plan)
found["skipped copy"] = trained(Spiller(plan))
json.dump(found, sys.stdout)
