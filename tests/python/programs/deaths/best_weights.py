"""A trainer keeps a copy of the weights whenever validation improves, on the GPU: each epoch does."""
import copy
import torch

model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
history = []
for epoch in range(200):
    model(torch.randn(32, 1024, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    history.append({"epoch": epoch, "weights": copy.deepcopy(model.state_dict())})  # named
