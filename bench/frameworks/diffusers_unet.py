"""diffusers: the unconditional U-Net of its training tutorial, with Accelerate and a sample in the midst."""

import torch
from accelerate import Accelerator
from diffusers import DDPMPipeline, DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from tiny import STEPS

model = UNet2DModel(
    sample_size=64,
    block_out_channels=(128, 128, 256, 256),
    down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
    up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D", "UpBlock2D"),
)
noise_scheduler = DDPMScheduler(num_train_timesteps=1000)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
accelerator = Accelerator(mixed_precision="bf16")
images = torch.utils.data.DataLoader(torch.randn(256, 3, 64, 64), batch_size=16)
scheduler = get_cosine_schedule_with_warmup(optimizer, 10, 1000)
model, optimizer, images, scheduler = accelerator.prepare(model, optimizer, images, scheduler)
for number, clean in enumerate(images):
    noise = torch.randn_like(clean)
    times = torch.randint(0, 1000, (clean.shape[0],), device=clean.device)
    with accelerator.accumulate(model):
        predicted = model(noise_scheduler.add_noise(clean, noise, times), times, return_dict=False)[0]
        accelerator.backward(torch.nn.functional.mse_loss(predicted, noise))
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    if number + 1 == STEPS // 2:
        pipeline = DDPMPipeline(unet=accelerator.unwrap_model(model), scheduler=noise_scheduler)
        pipeline.set_progress_bar_config(disable=True)
        pipeline(batch_size=8, num_inference_steps=4, output_type="pt")
    if number + 1 == STEPS:
        break
