"""The rate of a step is set right before it, after the backward pass; the model is an attribute of a class that trains it."""

import torch
from nets import Text, batch, text_loss, values


class Noam:
    def __init__(self, optimizer):
        self.optimizer, self.steps = optimizer, 0

    def step(self):
        self.steps += 1
        for group in self.optimizer.param_groups:
            group["lr"] = 1e-2 * min(self.steps / 3, self.steps**-0.5)
        self.optimizer.step()


class Task(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Text()

    def training_step(self, x, y):
        return text_loss(self.net(x), y)


def main():
    torch.manual_seed(0)
    task = Task()
    noam = Noam(torch.optim.Adam(task.parameters(), lr=0, betas=(0.9, 0.98)))
    losses = []
    for step in range(4):
        loss = task.training_step(*batch(step))
        noam.optimizer.zero_grad()
        loss.backward()
        noam.step()
        losses.append(loss.item())
    return values(losses, task, noam.optimizer)


if __name__ == "__main__":
    RESULT = main()
