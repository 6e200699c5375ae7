"""An auxiliary loss has a backward pass of its own, and a second optimizer comes after the first step."""

import torch
from nets import Text, batch, text_loss, values


def main():
    torch.manual_seed(0)
    model = Text()
    optimizer = torch.optim.AdamW(model.blocks.parameters(), lr=1e-2)
    of_head, losses = None, []
    for step in range(4):
        x, y = batch(step)
        logits = model(x)
        loss = text_loss(logits, y)
        loss.backward(retain_graph=True)
        logits.logsumexp(-1).square().mean().mul(1e-3).backward()
        optimizer.step()
        optimizer.zero_grad()
        if of_head is None:
            of_head = torch.optim.AdamW([model.head.weight], lr=1e-2)
        else:
            of_head.step()
        of_head.zero_grad()
        losses.append(loss.item())
    return values(losses, model, optimizer, of_head)


if __name__ == "__main__":
    RESULT = main()
