"""A class that trains, with warm restarts; the optimizer has two groups with rates of their own."""

import torch
from nets import Text, batch, text_loss, values


class Trainer:
    def __init__(self):
        self.model = Text()
        groups = [{"params": self.model.blocks.parameters(), "lr": 1e-2}, {"params": [self.model.tokens.weight, self.model.head.weight], "lr": 1e-3}]
        self.optimizer = torch.optim.RAdam(groups)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(self.optimizer, 2)
        self.losses = []

    def one(self, x, y):
        loss = text_loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.losses.append(loss.item())

    def fit(self):
        for step in range(5):
            self.one(*batch(step))


if __name__ == "__main__":
    torch.manual_seed(0)
    trainer = Trainer()
    trainer.fit()
    RESULT = values(trainer.losses, trainer.model, trainer.optimizer)
