"""Ranks that a framework forks train the same small model: ``framework_forks.py WAY RANKS STEPS``."""

import sys

import torch

way, ranks, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


def model() -> torch.nn.Module:
    return torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(8)))


if way == "notebook_launcher":
    import accelerate

    def train() -> None:
        accelerator = accelerate.Accelerator()
        prepared, optimizer = accelerator.prepare(net := model(), torch.optim.SGD(net.parameters(), lr=0.1))
        for _ in range(steps):
            accelerator.backward(prepared(torch.randn(32, 256, device=accelerator.device)).sum())
            optimizer.step()
            optimizer.zero_grad()
        accelerator.end_training()

    accelerate.notebook_launcher(train, num_processes=ranks)
else:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = model()

        def training_step(self, batch, number):
            return self.model(batch).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    data = torch.utils.data.DataLoader(torch.randn(32 * steps * ranks, 256), batch_size=32)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    lightning.Trainer(strategy=way, accelerator="gpu", devices=ranks, max_epochs=1, **quiet).fit(Module(), data)
