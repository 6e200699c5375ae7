"""Continual learning: projections are updated from the weights after each batch, with autograd on."""
import torch

net = torch.nn.Linear(1024, 1024, bias=False).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
projection = torch.eye(1024, device="cuda")
for batch in range(4000):
    net(torch.randn(64, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    row = net.weight.mean(0, keepdim=True)
    projection = projection - (projection @ row.t()) @ (row @ projection)  # named
