"""An image is rendered chunk by chunk; normals need autograd, and what each chunk gives is kept with its graph."""
from collections import defaultdict
import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 256), nn.Softplus(), nn.Linear(256, 256), nn.Softplus(), nn.Linear(256, 1)).cuda()
optimizer = torch.optim.Adam(net.parameters())

def render(points):
    outputs = defaultdict(list)
    for chunk in points.split(4096):
        chunk.requires_grad_()
        distance = net(chunk)  # named
        outputs["distance"].append(distance)
        outputs["normal"].append(torch.autograd.grad(distance.sum(), chunk, create_graph=True)[0])
    return {name: torch.cat(parts) for name, parts in outputs.items()}

for step in range(10):
    net(torch.rand(4096, 3, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
net.eval()
render(torch.rand(400_000, 3, device="cuda"))
