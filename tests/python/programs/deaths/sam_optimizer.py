"""Sharpness-aware minimisation: an optimizer of the program's own keeps the old weights and the disturbance of each."""
import torch
from torch import nn

class SAM(torch.optim.Optimizer):
    def __init__(self, parameters, base, **options):
        super().__init__(parameters, options)
        self.base = base(self.param_groups, **options)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def first_step(self):
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["old"] = p.clone()  # named
                self.state[p]["away"] = 0.05 * p.grad / (p.grad.norm() + 1e-12)
                p.add_(self.state[p]["away"])

    @torch.no_grad()
    def second_step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.copy_(self.state[p]["old"])
        self.base.step()

net = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(14))).cuda()
optimizer = SAM(net.parameters(), torch.optim.SGD, lr=0.1)
for step in range(5):
    x = torch.randn(64, 2048, device="cuda")
    net(x).square().mean().backward()
    optimizer.first_step()
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.second_step()
    optimizer.zero_grad()
