"""A router counts its choices in a buffer and has a bias that the counts move, without gradients."""

import torch
from nets import WIDTH, Text, batch, text_loss, values
from torch import nn


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.router, self.experts = nn.Linear(WIDTH, 4), nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(4))
        self.register_buffer("bias", torch.zeros(4))
        self.register_buffer("chosen", torch.zeros(4))

    def forward(self, x):
        scores = self.router(x).softmax(-1)
        picked = (scores + self.bias).argmax(-1)
        if self.training:
            count = torch.bincount(picked.flatten(), minlength=4).float()
            self.chosen += count
            self.bias += 0.05 * (count.mean() - count).sign()
        parts = [(picked == index).unsqueeze(-1) * scores[..., index : index + 1] * expert(x) for index, expert in enumerate(self.experts)]
        return x + sum(parts)


def main():
    torch.manual_seed(0)
    model = Text(Expert)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(5):
        x, y = batch(step)
        loss = text_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return values(losses, model, optimizer)


if __name__ == "__main__":
    RESULT = main()
