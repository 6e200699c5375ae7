"""Gates that lie in one storage and are no views of one tensor: each is changed in place, and saved, after another was."""

import torch
from nets import values
from torch import nn


class Text(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.gru, self.mean = nn.Embedding(20, 8), nn.GRU(8, 8, num_layers=2, batch_first=True), nn.Linear(8, 1)

    def forward(self, x):
        x = self.tokens(x)
        first, second, third = torch.unsafe_chunk(torch.cat((x, 2 * x, 3 * x), -1), 3, -1)
        x = first.sigmoid_() * second.tanh_() + third.exp_()
        return self.mean(self.gru(x)[0][:, -1])


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Text()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(5):
        loss = model(torch.randint(20, (4, 6))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    RESULT = values(losses, model)
