"""PEFT: LoRA adapters on a frozen model, with transformers' Trainer."""

from peft import LoraConfig, get_peft_model
from tiny import STEPS, Tokens, language_model
from transformers import Trainer, TrainingArguments

model = get_peft_model(language_model(), LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))
arguments = TrainingArguments(
    output_dir="out",
    max_steps=STEPS,
    per_device_train_batch_size=16,
    bf16=True,
    gradient_checkpointing=True,
    save_strategy="no",
    report_to="none",
)
Trainer(model, arguments, train_dataset=Tokens()).train()
