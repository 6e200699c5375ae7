"""The integrations in their frameworks: what reaches the logs, as one JSON object."""

import json
from pathlib import Path

import lightning
import torch
from accelerate import Accelerator
from lightning.pytorch.loggers import CSVLogger
from tiny import STEPS, Tokens, language_model
from transformers import Trainer, TrainingArguments

from stalloc.integrations import AccelerateTracker, LightningCallback, TransformersCallback, memory_figures


def with_trainer() -> list[dict]:
    arguments = TrainingArguments(
        output_dir="trainer",
        max_steps=STEPS,
        per_device_train_batch_size=4,
        logging_steps=1,
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="steps",
        save_steps=2,
        report_to=["tensorboard"],
        seed=1,
    )
    model = language_model(layers=1)
    trainer = Trainer(model, arguments, train_dataset=Tokens(), eval_dataset=Tokens(8))
    TransformersCallback.attach(trainer)
    trainer.train()
    return trainer.state.log_history


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = language_model(layers=1)

    def training_step(self, batch, _index):
        return self.model(**batch).loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-4)


def with_lightning() -> str:
    trainer = lightning.Trainer(
        max_steps=STEPS,
        accelerator="gpu",
        devices=1,
        logger=CSVLogger("lightning"),
        log_every_n_steps=1,
        callbacks=[LightningCallback()],
        enable_progress_bar=False,
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(Tokens(64), batch_size=4))
    return (Path(trainer.logger.log_dir) / "metrics.csv").read_text()


def with_accelerate() -> list[dict]:
    accelerator = Accelerator(log_with=[AccelerateTracker("accelerate")])
    accelerator.init_trackers("test", {"lr": 1e-4})
    model, optimizer = accelerator.prepare(model := torch.nn.Linear(64, 64), torch.optim.SGD(model.parameters()))
    for step in range(2):
        loss = model(torch.randn(4, 64, device=accelerator.device)).sum()
        accelerator.backward(loss)
        optimizer.step()
        accelerator.log({"loss": float(step)}, step=step)
    accelerator.end_training()
    return [json.loads(line) for line in Path("accelerate/memory.jsonl").read_text().splitlines()]


logs = {"trainer": with_trainer(), "accelerate": with_accelerate(), "lightning": with_lightning(), "figures": memory_figures()}
print(json.dumps(logs))
