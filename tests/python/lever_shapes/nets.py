"""Small models that the shapes share, and what a shape's run came to."""

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, CLASSES, LENGTH = 16, 1200, 6


class Block(nn.Module):
    def __init__(self, dropout=0.1):
        super().__init__()
        self.norm, self.widen, self.narrow = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.dropout(self.narrow(F.gelu(self.widen(self.norm(x)))))


class Text(nn.Module):
    def __init__(self, block=Block, layers=4):
        super().__init__()
        self.tokens, self.blocks = nn.Embedding(CLASSES, WIDTH), nn.ModuleList(block() for _ in range(layers))
        self.head = nn.Linear(WIDTH, CLASSES, bias=False)

    def forward(self, x):
        x = self.tokens(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def batch(step, size=4):
    made = torch.Generator().manual_seed(1000 + step)
    text = torch.randint(CLASSES, (size, LENGTH + 1), generator=made)
    return text[:, :-1], text[:, 1:]


def text_loss(logits, target):
    return F.cross_entropy(logits.view(-1, logits.size(-1)), target.reshape(-1))


def values(*of):
    """All numbers of some modules, optimizers, tensors and figures."""
    found = []
    for one in of:
        if isinstance(one, nn.Module):
            found += [v for v in one.state_dict().values()]
        elif isinstance(one, torch.optim.Optimizer):
            saved = one.state_dict()
            found += [v for _, state in sorted(saved["state"].items()) for v in state.values() if v is not None]
            found.append(str([{k: v for k, v in g.items() if k not in ("params", "foreach", "fused")} for g in saved["param_groups"]]))
        else:
            found += [*one] if isinstance(one, list) else [one]
    return [v.detach().double().flatten().tolist() if isinstance(v, torch.Tensor) else v for v in found]
