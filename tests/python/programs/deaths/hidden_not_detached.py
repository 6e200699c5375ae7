"""A recurrent network's state goes from one batch to the next with its graph."""
import torch

net = torch.nn.GRUCell(512, 1024).cuda()
head = torch.nn.Linear(1024, 512).cuda()
optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.01)
state = torch.zeros(512, 1024, device="cuda")
for batch in range(4000):
    state = net(torch.randn(512, 512, device="cuda"), state)  # named
    loss = head(state).square().mean()
    loss.backward(retain_graph=True)
    optimizer.zero_grad(set_to_none=True)
