"""Trains a small model on the CPU with each lever; prints losses and parameters as JSON."""

import json
from types import SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from stalloc._levers.catalogue import LEVERS
from stalloc._levers.program import Program

WIDTH, CLASSES = 32, 1200


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.widen, self.narrow = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 64), nn.Linear(64, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.dropout(self.narrow(F.gelu(self.widen(self.norm(x)))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block() for _ in range(4)))
        self.wide, self.head = nn.Linear(WIDTH, CLASSES), nn.Linear(WIDTH, CLASSES)
        self.config, self.blocks.config = SimpleNamespace(use_cache=True), SimpleNamespace(use_cache=True)
        self.unused = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(x) * self.unused
        return self.head(x + (self.wide(x) * 0.5)[..., :WIDTH])


def train(lever=None, parts: int = 1, dropout: float = 0.1) -> list[float]:
    torch.manual_seed(1)
    model = Model()
    for block in model.blocks:
        block.dropout.p = dropout
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p is not model.unused])
    program = Program(torch, optimizers=[optimizer])
    name, _model = program.model_called(model)
    assert (name, program.optimizer_names) == ("model", ["optimizer"])
    program.does.add("late zeroing")
    if lever is not None:
        assert lever.on_model(program, name, model) or lever.name == "optimizer_8bit", lever.name
    if lever is not None and lever.name.startswith("checkpoint"):
        assert not model.config.use_cache and not model.blocks.config.use_cache
    said = []
    for _step in range(3):
        inputs, targets = torch.randn(2, 8, WIDTH), torch.randint(CLASSES, (2, 8))
        losses = []
        for x, y in zip(inputs.chunk(parts), targets.chunk(parts)):
            losses.append(F.cross_entropy(model(x).view(-1, CLASSES), y.flatten()))
            losses[-1].backward()
            optimizer.step()
            said.append(sum(p.double().abs().sum().item() for p in model.parameters() if p is not model.unused))
            optimizer.zero_grad()
        said[-parts:] = [sum(losses).item() / parts, said[-1]]
    return said


answer = {"as it is": train()}
for lever in LEVERS:
    # Dropout has other masks for half of a batch; fused steps and ranks need a GPU.
    if lever.numerics != "change" and lever.group != "sharding" and lever.name not in ("accumulate", "fused"):
        answer[lever.name] = train(lever)
    elif lever.name == "accumulate":
        answer["without dropout"], answer[lever.name] = train(dropout=0), train(lever, parts=2, dropout=0)
print(json.dumps(answer))
