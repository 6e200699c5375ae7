"""TRL: group relative policy optimization, generating with the model that is trained."""

import random

from datasets import Dataset
from tiny import STEPS, language_model, sentence, tokenizer
from trl import GRPOConfig, GRPOTrainer

chance = random.Random(3)
prompts = Dataset.from_list([{"prompt": sentence(10, 60, chance)} for _ in range(128)])
config = GRPOConfig(
    output_dir="out",
    max_steps=STEPS,
    per_device_train_batch_size=8,
    num_generations=4,
    max_completion_length=32,
    bf16=True,
    save_strategy="no",
    report_to="none",
)


def reward(completions, **_):
    """Longer is better."""
    return [float(len(completion)) for completion in completions]


GRPOTrainer(language_model(), reward_funcs=reward, args=config, train_dataset=prompts, processing_class=tokenizer()).train()
