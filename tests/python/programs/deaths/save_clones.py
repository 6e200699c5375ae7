"""Before it saves, a job copies all weights and states on the GPU."""
import torch
from torch import nn

def copied(values):
    return {name: value.clone() for name, value in values.items()}  # named

net = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(10))).cuda()
optimizer = torch.optim.Adam(net.parameters(), foreach=False)
for step in range(6):
    net(torch.randn(64, 2048, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 4:
        torch.save([copied(net.state_dict()), [copied(state) for state in optimizer.state.values()]], "/dev/null")
