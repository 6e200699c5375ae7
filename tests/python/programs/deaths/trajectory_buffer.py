"""Rollouts of an agent: log-probabilities are kept with their graphs until the update, and one episode does not end."""
import torch

policy = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.Tanh(), torch.nn.Linear(1024, 64)).cuda()
optimizer = torch.optim.Adam(policy.parameters(), fused=True)
for episode in [5, 5, 100000]:
    log_probabilities = []
    for move in range(episode):
        logits = policy(torch.randn(256, 256, device="cuda"))
        log_probabilities.append(logits.log_softmax(-1))  # named
    torch.cat(log_probabilities).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
