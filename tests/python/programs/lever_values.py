"""Trains a small model on the CPU with each lever, applied from outside and as its lines are printed; prints losses and gradients as JSON."""

import json

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
        self.head = nn.Linear(WIDTH, CLASSES)
        self.unused = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x) * self.unused)


def train(lever=None, by_hand: bool = False) -> list[float]:
    torch.manual_seed(1)
    model = Model()
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p is not model.unused])
    program = Program(torch, optimizers=[optimizer])
    program.model_called("model", model)
    if by_hand:
        exec(lever.how(program), {"torch": torch, "model": model, "optimizer": optimizer})  # noqa: S102
    elif lever is not None:
        lever.on_optimizer(program, optimizer)
        assert lever.on_model(program, "model", model) or lever.group in ("optimizer", "zero"), lever.name
    said = []
    for _step in range(3):
        inputs, targets = torch.randn(2, 8, WIDTH), torch.randint(CLASSES, (2, 8))
        loss = F.cross_entropy(model(inputs).view(-1, CLASSES), targets.flatten())
        loss.backward()
        optimizer.step()
        said += [loss.item(), sum(p.double().abs().sum().item() for p in model.parameters() if p is not model.unused)]
        optimizer.zero_grad()
        if lever is not None:
            lever.on_step(program, optimizer)
    return said


answer = {"as it is": train()}
for lever in LEVERS:
    # Half of the batch is another batch; fused steps and ranks need a GPU.
    if lever.numerics != "change" and lever.group != "sharding" and lever.name not in ("accumulate", "fused"):
        answer[lever.name] = train(lever)
        if lever.group in ("activations", "frozen"):
            answer[f"{lever.name} by hand"] = train(lever, by_hand=True)
print(json.dumps(answer))
