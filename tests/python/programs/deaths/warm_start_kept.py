"""A model starts from pretrained weights, which the object that loaded them keeps."""
import os
import tempfile
import torch
from torch import nn

class Pretrained:
    def __init__(self, path):
        self.weights = torch.load(path, map_location="cuda")  # named

    def start(self, model):
        model.load_state_dict({name: value for name, value in self.weights.items() if name in model.state_dict()}, strict=False)
        return model

def make(width, depth):
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)))

path = os.path.join(tempfile.mkdtemp(), "pretrained.pt")
torch.save(make(1536, 36).state_dict(), path)
source = Pretrained(path)
os.remove(path)
model = source.start(make(1536, 12).cuda())
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.randn(6144, 1536, device="cuda")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
