"""The training step of gpt.py, for programs that do more than train."""

import torch
from torch import nn


class Trainer:
    """Makes the same requests as gpt.py, unless its model is another one."""

    def __init__(self, width=128, layers=4):
        torch.manual_seed(0)
        self.width = width
        layer = nn.TransformerEncoderLayer(width, 4, 512, batch_first=True, dropout=0.1, activation="gelu")
        self.model = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).cuda()
        self.head = nn.Linear(width, 1000, device="cuda")
        self.optimizer = torch.optim.AdamW([*self.model.parameters(), *self.head.parameters()])
        self.side = torch.cuda.Stream()

    def step(self, rows=8):
        x = torch.randn(rows, 64, self.width).cuda()
        with torch.cuda.stream(self.side):
            noise = torch.randn_like(x)
        torch.cuda.current_stream().wait_stream(self.side)
        noise.record_stream(torch.cuda.current_stream())
        target = torch.zeros(64 * rows, dtype=int).cuda()  # gpt.py makes it later: a program leaves its plan here
        loss = nn.functional.cross_entropy(self.head(self.model(x + noise)).flatten(0, 1), target)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()
