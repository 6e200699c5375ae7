"""PEFT over bitsandbytes: adapters on a model of four bits, with an optimizer of eight bits in pages."""

import torch
from bitsandbytes.nn import Linear4bit
from peft import LoraConfig, get_peft_model
from tiny import STEPS, Tokens, language_model
from transformers import Trainer, TrainingArguments


def quantized(model: torch.nn.Module) -> torch.nn.Module:
    """The same model with its linear layers in four bits, quantized when it reaches the GPU."""
    for name, module in list(model.named_modules()):
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            parent, _, own = name.rpartition(".")
            small = Linear4bit(module.in_features, module.out_features, bias=False, compute_dtype=torch.bfloat16, quant_type="nf4")
            small.load_state_dict(module.state_dict())
            setattr(model.get_submodule(parent), own, small)
    return model


model = get_peft_model(
    quantized(language_model()).cuda(),
    LoraConfig(r=16, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], task_type="CAUSAL_LM"),
)
arguments = TrainingArguments(
    output_dir="out",
    max_steps=STEPS,
    per_device_train_batch_size=16,
    bf16=True,
    optim="paged_adamw_8bit",
    save_strategy="no",
    report_to="none",
)
Trainer(model, arguments, train_dataset=Tokens()).train()
