"""TRL: supervised fine-tuning on texts of different lengths."""

import random

from datasets import Dataset
from tiny import STEPS, language_model, sentence, tokenizer
from trl import SFTConfig, SFTTrainer

chance = random.Random(1)
texts = Dataset.from_list([{"text": sentence(20, 500, chance)} for _ in range(256)])
config = SFTConfig(
    output_dir="out", max_steps=STEPS, per_device_train_batch_size=8, max_length=512, bf16=True, save_strategy="no", report_to="none"
)
SFTTrainer(language_model(), args=config, train_dataset=texts, processing_class=tokenizer()).train()
