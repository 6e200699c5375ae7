"""Evaluated before, between and after steps, with what the logits say."""

import torch
from nets import Text, batch, text_loss, values


@torch.no_grad()
def evaluate(model):
    was = model.training
    model.eval()
    logits = model(batch(99)[0])
    model.train(was)
    return [logits.softmax(-1).max().item(), logits.argmax(-1).float().mean().item(), text_loss(logits, batch(99)[1]).item()]


def train(model, optimizer, epoch):
    losses = []
    for step in range(2 * epoch, 2 * epoch + 2):
        x, y = batch(step)
        logits = model(x)
        loss = text_loss(logits, y)
        right = (logits.argmax(-1) == y).float().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses += [loss.item(), right.item()]
    return losses


def main():
    torch.manual_seed(0)
    model = Text()
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-2)
    found = evaluate(model)
    for epoch in range(3):
        found += train(model, optimizer, epoch) + evaluate(model)
    return values(found, model, optimizer)


if __name__ == "__main__":
    RESULT = main()
