"""A list of the errors that were met, each of which keeps the frames that it came through."""

import torch
from torch import nn

class Trainer:
    def __init__(self):
        self.net = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(12))).cuda()
        self.errors = []
    def forward(self, batch):
        x = torch.randn(batch, 1024, device="cuda")
        kept = []
        for layer in self.net:
            x = torch.relu(layer(x))  # named
            kept.append(x)
        return torch.stack(kept).mean()
    def run(self):
        batch = 12000
        while True:
            try:
                self.forward(batch).backward()
                return batch
            except torch.cuda.OutOfMemoryError as error:
                self.errors.append(error)
            batch = int(batch * 0.8)
            if batch < 1000:
                self.forward(batch).backward()

Trainer().run()
