"""timm: a vision transformer with its optimizer, its scheduler, mixup and an average of the weights."""

import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import ModelEmaV3, NativeScaler
from tiny import STEPS

model = timm.create_model("vit_small_patch16_224", drop_path_rate=0.1).cuda()
optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
scheduler, _ = create_scheduler_v2(optimizer, sched="cosine", num_epochs=2)
average, scaler = ModelEmaV3(model), NativeScaler()
mixup, criterion = Mixup(mixup_alpha=0.8, num_classes=1000), SoftTargetCrossEntropy()
model.train()
for number in range(STEPS):
    images, labels = torch.randn(64, 3, 224, 224).cuda(), torch.randint(1000, (64,)).cuda()
    images, labels = mixup(images, labels)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = criterion(model(images), labels)
    optimizer.zero_grad()
    scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())
    average.update(model, step=number)
    scheduler.step_update(number)
