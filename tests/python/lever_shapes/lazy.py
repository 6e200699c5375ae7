"""A trainer makes its optimizer within the call that trains, in a line with another statement."""

import torch
from nets import Text, batch, text_loss, values


class Trainer:
    def __init__(self, model):
        self.model, self.optimizer, self.losses = model, None, []

    def create_optimizer(self):
        if self.optimizer is None: self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2); self.losses.append(0.5)  # noqa: E701, E702

    def loop(self, steps):
        self.create_optimizer()
        for step in range(steps):
            x, y = batch(step)
            loss = text_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.losses.append(loss.item())

    def train(self):
        return self.loop(4)


if __name__ == "__main__":
    torch.manual_seed(0)
    trainer = Trainer(Text())
    trainer.train()
    RESULT = values(trainer.losses, trainer.model, trainer.optimizer)
