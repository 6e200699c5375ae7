"""Two towers, of images and of texts, that learn which belong together."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH, WIDTH, LENGTH, STEPS = 96, 512, 77, 12


class Tower(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True) for _ in range(layers)
        )
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return F.normalize(self.out(self.norm(x[:, 0])), dim=-1)


class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.words = nn.Conv2d(3, WIDTH, 16, 16), nn.Embedding(16384, WIDTH)
        self.image_places, self.text_places = nn.Parameter(torch.zeros(196, WIDTH)), nn.Parameter(torch.zeros(LENGTH, WIDTH))
        self.image, self.text = Tower(10), Tower(8)
        self.scale = nn.Parameter(torch.tensor(2.66))

    def forward(self, images, texts):
        seen = self.image(self.patches(images).flatten(2).transpose(1, 2) + self.image_places)
        read = self.text(self.words(texts) + self.text_places)
        return self.scale.exp() * seen @ read.t()


model = Clip().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=0.2)
for _step in range(STEPS):
    images, texts = torch.randn(BATCH, 3, 224, 224).cuda(), torch.randint(16384, (BATCH, LENGTH)).cuda()
    logits = model(images, texts)
    labels = torch.arange(BATCH, device="cuda")
    loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
