"""A server that forgets to drop the keys and values of requests that are done."""

from dataclasses import dataclass, field

import torch
from torch import nn


@dataclass
class Request:
    number: int
    keys: list = field(default_factory=list)
    values: list = field(default_factory=list)


class Engine:
    def __init__(self):
        self.project = nn.Linear(1024, 2048).cuda()
        self.requests = {}

    @torch.inference_mode()
    def generate(self, number, tokens):
        request = self.requests.setdefault(number, Request(number))
        x = torch.randn(1, 256, 1024, device="cuda")
        for _ in range(tokens):
            k, v = self.project(x).chunk(2, -1)  # named
            request.keys.append(k)
            request.values.append(v)
            x = v
        return x.mean().item()


engine = Engine()
for number in range(10_000):
    engine.generate(number, 8)
