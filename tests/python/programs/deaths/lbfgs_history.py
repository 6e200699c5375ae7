"""L-BFGS remembers its last hundred steps and directions, each as large as the model."""
import torch

net = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.Tanh(), torch.nn.Linear(1024, 1024)).cuda()
optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=2, history_size=200, tolerance_grad=-1, tolerance_change=-1)


def closure():
    optimizer.zero_grad()
    loss = net(torch.randn(64, 1024, device="cuda")).square().mean()
    loss.backward()
    return loss


for step in range(400):
    optimizer.step(closure)  # named
