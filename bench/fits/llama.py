"""A Llama in 16 bits: RMSNorm, rotary angles, gated layers, a warm-up."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH, LENGTH, WIDTH, HEADS, LAYERS, WORDS, STEPS = 4, 1024, 1024, 16, 12, 32_000, 12


def rotate(x, angles):
    first, second = x.chunk(2, -1)
    return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up, self.down = (nn.Linear(*size, bias=False) for size in ((WIDTH, 2816), (WIDTH, 2816), (2816, WIDTH)))

    def forward(self, x, angles):
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(rotate(q, angles), rotate(k, angles), v, is_causal=True).transpose(1, 2).flatten(2))
        hidden = self.norm2(x)
        return x + self.down(F.silu(self.gate(hidden)) * self.up(hidden))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layers = nn.Embedding(WORDS, WIDTH), nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.lm_head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        rates = 10_000 ** (-torch.arange(0, 1, 2 * HEADS / WIDTH))
        self.register_buffer("angles", torch.arange(LENGTH)[:, None] * rates, persistent=False)

    def forward(self, text):
        x = self.embed(text)
        for layer in self.layers:
            x = layer(x, self.angles.to(x.dtype))
        return self.lm_head(self.norm(x))


model = Llama().to("cuda", torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 100))
for _step in range(STEPS):
    text = torch.randint(WORDS, (BATCH, LENGTH + 1), device="cuda")
    logits = model(text[:, :-1])
    loss = F.cross_entropy(logits.float().view(-1, WORDS), text[:, 1:].reshape(-1))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
