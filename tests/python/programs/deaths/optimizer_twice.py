"""Models with their optimizers, each reload next to those before."""

import torch
from torch import nn

class Session:
    def __init__(self):
        self.model = nn.Sequential(*(nn.Linear(1536, 1536) for _ in range(6))).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters())
    def step(self):
        x = torch.randn(64, 1536, device="cuda")
        self.model(x).mean().backward()
        self.optimizer.step()  # named
        self.optimizer.zero_grad()

sessions = {}
def reload(version):
    sessions[version] = Session()
    return sessions[version]

for restart in range(20):
    session = reload(restart)
    for _ in range(5):
        session.step()
