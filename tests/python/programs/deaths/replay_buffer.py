"""A replay buffer for 30 million transitions is made on the GPU."""
import torch

policy = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 8)).cuda()
optimizer = torch.optim.Adam(policy.parameters())


class Replay:
    def __init__(self, capacity):
        self.states = torch.zeros(capacity, 64, device="cuda")  # named
        self.actions = torch.zeros(capacity, 8, device="cuda")


replay = Replay(30_000_000)
for step in range(10):
    policy(replay.states[:256]).mean().backward()
    optimizer.step()
