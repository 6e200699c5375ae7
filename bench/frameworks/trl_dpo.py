"""TRL: direct preference optimization, with a reference model."""

import random

from datasets import Dataset
from tiny import STEPS, language_model, sentence, tokenizer
from trl import DPOConfig, DPOTrainer

chance = random.Random(2)


def pair() -> dict[str, str]:
    return {"prompt": sentence(10, 60, chance), "chosen": sentence(20, 200, chance), "rejected": sentence(20, 200, chance)}


config = DPOConfig(
    output_dir="out", max_steps=STEPS, per_device_train_batch_size=4, max_length=300, bf16=True, save_strategy="no", report_to="none"
)
pairs = Dataset.from_list([pair() for _ in range(128)])
DPOTrainer(language_model(), ref_model=language_model(), args=config, train_dataset=pairs, processing_class=tokenizer()).train()
