"""Each client of a federated job has a model and an optimizer of its own on the GPU, trained in turn."""
import torch
from torch import nn

class Client:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def train(self):
        for _ in range(2):
            self.model(torch.randn(64, 1024, device="cuda")).square().mean().backward()
            self.optimizer.step()  # named
            self.optimizer.zero_grad()

clients = [Client() for _ in range(14)]
for turn in range(3):
    for client in clients:
        client.train()
