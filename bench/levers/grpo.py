"""TRL: group relative policy optimization, generating with the model that is trained."""

import random
import sys

from datasets import Dataset
from tiny import language_model, sentence, tokenizer
from trl import GRPOConfig, GRPOTrainer

chance = random.Random(3)
prompts = Dataset.from_list([{"prompt": sentence(10, 60, chance)} for _ in range(128)])
config = GRPOConfig(
    output_dir="out",
    max_steps=8,
    per_device_train_batch_size=int(sys.argv[1]),
    num_generations=2,
    max_completion_length=16,
    gradient_checkpointing=False,
    bf16=False,
    save_strategy="no",
    report_to="none",
)


def reward(completions, **_):
    return [float(len(completion)) for completion in completions]


model = language_model(2)
# before the trainer
GRPOTrainer(model, reward_funcs=reward, args=config, train_dataset=prompts, processing_class=tokenizer()).train()
