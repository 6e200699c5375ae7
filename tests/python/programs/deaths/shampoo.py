"""An optimizer of the program's own keeps a matrix of rows by rows for each parameter, also for an embedding with many rows."""
import torch
from torch import nn

class Shampoo(torch.optim.Optimizer):
    def __init__(self, parameters, lr=0.1):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for one in group["params"]:
                gradient = one.grad.flatten(1)
                left = gradient @ gradient.T  # named
                self.state[one]["left"] = self.state[one].get("left", 0) + left
                one -= group["lr"] * gradient / self.state[one]["left"].diagonal().sqrt()[:, None]

words, head = nn.Embedding(12000, 256).cuda(), nn.Linear(256, 256, bias=False).cuda()
optimizer = Shampoo([*head.parameters(), *words.parameters()])
for _ in range(4):
    head(words(torch.randint(0, 12000, (16, 128), device="cuda"))).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
