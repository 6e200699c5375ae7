"""Preference training: log-probabilities over the vocabulary of policy and reference, chosen and rejected."""
import torch
from torch import nn
policy = nn.Sequential(nn.Embedding(16000, 64), nn.Linear(64, 16000)).cuda()
reference = nn.Sequential(nn.Embedding(16000, 64), nn.Linear(64, 16000)).cuda().requires_grad_(False)
optimizer = torch.optim.AdamW(policy.parameters())

def chosen(net, tokens):
    logits = net(tokens)  # named
    return logits.log_softmax(-1).gather(-1, tokens[..., None]).sum()

for _ in range(3):
    tokens = torch.randint(0, 16000, (10, 512), device="cuda")
    with torch.no_grad():
        base = chosen(reference, tokens)
    (chosen(policy, tokens) - chosen(policy, tokens.flip(0)) - base).backward()
    optimizer.step()
    optimizer.zero_grad()
