"""New words come with each chunk of text: the tied embedding is made anew, larger, and given to the optimizer, which keeps the old."""
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.embedding, self.mix = nn.Embedding(words, 512), nn.Linear(512, 512)

    def forward(self, x):
        return self.mix(self.embedding(x)) @ self.embedding.weight.T

    def extend(self, words):
        old = self.embedding.weight
        self.embedding = nn.Embedding(words, 512, device="cuda")  # named
        self.embedding.weight.data[: len(old)] = old.data

net = Model(8000).cuda()
optimizer = torch.optim.Adam(net.parameters())
for chunk in range(40):
    for step in range(4):
        x = torch.randint(0, 8000, (256,), device="cuda")
        nn.functional.cross_entropy(net(x), x).backward()
        optimizer.step()
        optimizer.zero_grad()
    net.extend(8000 + 200 * (chunk + 1))
    optimizer.add_param_group({"params": [net.embedding.weight]})
