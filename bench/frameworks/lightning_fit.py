"""Lightning: a module, validations, mixed precision."""

import lightning
import torch
from tiny import EVERY, STEPS, Tokens, language_model


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = language_model()

    def training_step(self, batch, _index):
        loss = self.model(**batch).loss
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, _index):
        self.log("validation", self.model(**batch).loss)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-4)


def loader(rows: int) -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader(Tokens(rows), batch_size=8)


trainer = lightning.Trainer(
    max_steps=STEPS,
    accelerator="gpu",
    devices=1,
    precision="bf16-mixed",
    val_check_interval=EVERY,
    limit_val_batches=2,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(Module(), loader(4096), loader(32))
