"""A triplet loss over all triplets of a batch: batch x batch x batch."""
import torch
from torch import nn

def triplets(embedding, label):
    far = torch.cdist(embedding, embedding)
    loss = far[:, :, None] - far[:, None, :] + 0.2
    same = label[:, None] == label[None]
    valid = same[:, :, None] & ~same[:, None, :]
    loss = (loss * valid).relu()  # named
    return loss.sum() / (loss > 1e-16).sum()

net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 64)).cuda()
optimizer = torch.optim.Adam(net.parameters())
for step in range(6):
    x = torch.randn(400, 256, device="cuda")
    triplets(net(x), torch.randint(0, 20, (400,), device="cuda")).backward()
    optimizer.step()
    optimizer.zero_grad()
