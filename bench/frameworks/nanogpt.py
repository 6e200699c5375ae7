"""A GPT in plain PyTorch under torch.compile, as nanoGPT trains one: micro-batches, a scaler, an estimate of the loss."""

import math

import torch
from tiny import LENGTH, STEPS, VOCABULARY
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, LAYERS = 768, 12, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.attend(self.first(x)).unflatten(-1, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.project(attended)
        return x + self.narrow(F.gelu(self.widen(self.second(x))))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.last, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = self.tokens(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.last(x)).flatten(0, 1), y.flatten())


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    rows = torch.randint(VOCABULARY, (12, LENGTH + 1)).pin_memory()
    return rows[:, :-1].cuda(non_blocking=True), rows[:, 1:].cuda(non_blocking=True)


def estimate() -> None:
    model.eval()
    with torch.no_grad(), cast:
        for _ in range(2):
            model(*batch())
    model.train()


model = torch.compile(GPT().cuda())
cast = torch.autocast("cuda", dtype=torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, fused=True)
for number in range(STEPS):
    for group in optimizer.param_groups:
        group["lr"] = 6e-4 * (1 + math.cos(math.pi * number / STEPS)) / 2
    if number == STEPS // 2:
        estimate()
    for _ in range(2):
        with cast:
            loss = model(*batch()) / 2
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
