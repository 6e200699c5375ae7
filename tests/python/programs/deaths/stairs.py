"""A metric that is updated in one step of four keeps what it is given."""
import torch

net = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
seen = []
for step in range(4000):
    out = net(torch.randn(512, 1024, device="cuda"))  # named
    out.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 4 == 0:
        seen.append(out.detach())
