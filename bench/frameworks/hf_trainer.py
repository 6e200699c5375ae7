"""transformers' Trainer: accumulation of gradients, an evaluation in the midst."""

from tiny import EVERY, STEPS, Tokens, language_model
from transformers import Trainer, TrainingArguments

arguments = TrainingArguments(
    output_dir="out",
    max_steps=STEPS,
    per_device_train_batch_size=8,
    per_device_eval_batch_size=8,
    gradient_accumulation_steps=2,
    bf16=True,
    eval_strategy="steps",
    eval_steps=EVERY,
    save_strategy="no",
    logging_steps=1,
    report_to="none",
)
Trainer(language_model(), arguments, train_dataset=Tokens(), eval_dataset=Tokens(32)).train()
