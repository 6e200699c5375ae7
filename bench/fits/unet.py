"""A U-Net that segments images, in 16 bits with a gradient scaler."""

import torch
from torch import nn
from torch.nn import functional as F

BATCH, SIDE, CLASSES, STEPS = 16, 256, 21, 12


def double(before, after):
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True),
        nn.Conv2d(after, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True),
    )  # fmt: skip


class UNet(nn.Module):
    def __init__(self, widths=(64, 128, 256, 512)):
        super().__init__()
        self.down = nn.ModuleList(double(a, b) for a, b in zip((3, *widths), widths))
        self.middle = double(widths[-1], 1024)
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * width, width, 2, 2) for width in reversed(widths))
        self.join = nn.ModuleList(double(2 * width, width) for width in reversed(widths))
        self.out = nn.Conv2d(widths[0], CLASSES, 1)

    def forward(self, x):
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = F.max_pool2d(x, 2)
        x = self.middle(x)
        for up, join in zip(self.up, self.join):
            x = join(torch.cat([skips.pop(), up(x)], 1))
        return self.out(x)


device = torch.device("cuda")
net = UNet().to(device)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cuda")
criterion = nn.CrossEntropyLoss()
for _step in range(STEPS):
    images, masks = torch.randn(BATCH, 3, SIDE, SIDE), torch.randint(CLASSES, (BATCH, SIDE, SIDE))
    images, masks = images.to(device), masks.to(device)
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = criterion(net(images), masks)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
