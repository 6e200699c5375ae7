"""Features of all layers are collected for a probe, in a dict of lists."""
import torch

layers = torch.nn.ModuleList([torch.nn.Linear(512, 512) for _ in range(6)]).cuda()
features = {number: [] for number in range(6)}
with torch.no_grad():
    for batch in range(3000):
        x = torch.randn(128, 512, device="cuda")
        for number, layer in enumerate(layers):
            x = layer(x).relu()  # named
            features[number].append(x)
