"""Generators that wait in a list, each with a tensor among its variables."""

import torch
from torch import nn

def beam(model, start):
    hidden = start.clone()
    while True:
        hidden = model(hidden).tanh()
        yield hidden.mean().item()

def search():
    model = nn.Linear(1024, 1024).cuda()
    live = []
    with torch.no_grad():
        for index in range(1000):
            candidate = beam(model, torch.randn(512, 1024, device="cuda"))  # named
            next(candidate)
            live.append(candidate)

search()
