"""A masked language model whose loss over the vocabulary is written by hand."""
import torch
from torch import nn

class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(32000, 128)
        self.body = nn.Sequential(nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 128))

    def forward(self, tokens):
        return self.body(self.words(tokens)) @ self.words.weight.T  # named

model = Masked().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    tokens = torch.randint(0, 32000, (4, 512), device="cuda")
    masked = torch.rand(4, 512, device="cuda") < 0.15
    scores = model(tokens)
    chances = scores - scores.logsumexp(-1, keepdim=True)
    loss = -(chances.gather(-1, tokens[..., None])[..., 0] * masked).sum() / masked.sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
