"""All in main(); gradients are freed after the forward pass; weights are tied."""

import torch
from nets import Text, batch, text_loss, values


def main():
    torch.manual_seed(0)
    net = Text()
    net.head.weight = net.tokens.weight
    opt = torch.optim.AdamW(
        [{"params": [p for p in net.parameters() if p.dim() > 1]}, {"params": [p for p in net.parameters() if p.dim() < 2], "weight_decay": 0.0}],
        lr=1e-2,
    )
    losses = []
    for step in range(4):
        x, y = batch(step)
        loss = text_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return values(losses, net, opt)


if __name__ == "__main__":
    RESULT = main()
