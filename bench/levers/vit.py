"""A vision transformer of timm, trained under a class that holds it."""

import sys

import timm
import torch


class Training:
    def __init__(self, batch):
        self.batch = batch
        self.model = timm.create_model("vit_tiny_patch16_224", num_classes=100).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, weight_decay=0.05)
        self.loss = torch.nn.CrossEntropyLoss(label_smoothing=0.1)

    def run(self):
        self.model.train()
        for _step in range(8):
            images = torch.randn(self.batch, 3, 224, 224).cuda(non_blocking=True)
            loss = self.loss(self.model(images), torch.randint(100, (self.batch,)).cuda())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            loss.item()


Training(int(sys.argv[1])).run()
