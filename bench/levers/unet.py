"""A U-Net of diffusers that learns to take noise away."""

import sys

import torch
from diffusers import DDPMScheduler, UNet2DModel

unet = UNet2DModel(
    sample_size=32, block_out_channels=(64, 128), down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D")
).to("cuda")
noise_scheduler = DDPMScheduler(num_train_timesteps=1000)
optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-4)
batch = int(sys.argv[1])
for _step in range(8):
    clean = torch.randn(batch, 3, 32, 32, device="cuda")
    noise, times = torch.randn_like(clean), torch.randint(0, 1000, (batch,), device="cuda")
    predicted = unet(noise_scheduler.add_noise(clean, noise, times), times).sample
    torch.nn.functional.mse_loss(predicted, noise).backward()
    optimizer.step()
    optimizer.zero_grad()
