"""Fine-tuning in stages: the next stage's model and optimizer are made while those of the stage before still live."""
import torch


def stage(width):
    model = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(9)]).cuda()  # named
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for step in range(5):
        model(torch.randn(64, width, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


model, optimizer = stage(2048)
model, optimizer = stage(2048)
