"""Training fits; the evaluation, without autograd, has a batch that is sixteen times as large."""
import torch

net = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 3, padding=1)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(8):
    net(torch.randn(4, 3, 128, 128, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
net.eval()
with torch.no_grad():
    net(torch.randn(128, 3, 128, 128, device="cuda"))  # named
