"""A diffusion transformer whose weights are averaged."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

BATCH, PLACES, WIDTH, HEADS, LAYERS, STEPS = 24, 256, 768, 12, 12, 12


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = (nn.LayerNorm(WIDTH, elementwise_affine=False) for _ in range(2))
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(approximate="tanh"), nn.Linear(4 * WIDTH, WIDTH))
        self.modulation = nn.Sequential(nn.SiLU(), nn.Linear(WIDTH, 6 * WIDTH))

    def forward(self, x, c):
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(c)[:, None].chunk(6, dim=-1)
        h = self.norm1(x) * (1 + scale1) + shift1
        x = x + gate1 * self.attention(h, h, h, need_weights=False)[0]
        return x + gate2 * self.mlp(self.norm2(x) * (1 + scale2) + shift2)


class DiT(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.places = nn.Linear(16, WIDTH), nn.Parameter(torch.zeros(PLACES, WIDTH))
        self.time, self.label = nn.Linear(256, WIDTH), nn.Embedding(1000, WIDTH)
        self.blocks, self.leave = nn.ModuleList(Block() for _ in range(LAYERS)), nn.Linear(WIDTH, 16)

    def forward(self, x, t, y):
        angles = t[:, None] * torch.exp(-9.2 * torch.arange(128, device=t.device) / 128)
        c = self.time(torch.cat([angles.cos(), angles.sin()], -1)) + self.label(y)
        x = self.enter(x) + self.places
        for block in self.blocks:
            x = block(x, c)
        return self.leave(x)


model = DiT().cuda()
ema = copy.deepcopy(model).requires_grad_(False)
opt = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0)
for _step in range(STEPS):
    x, y, t = torch.randn(BATCH, PLACES, 16).cuda(), torch.randint(1000, (BATCH,)).cuda(), torch.rand(BATCH, device="cuda")
    noise = torch.randn_like(x)
    noisy = x * (1 - t)[:, None, None] + noise * t[:, None, None]
    with torch.autocast("cuda", torch.bfloat16):
        loss = F.mse_loss(model(noisy, t, y).float(), noise - x)
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for average, weight in zip(ema.parameters(), model.parameters()):
            average.lerp_(weight, 0.0001)
