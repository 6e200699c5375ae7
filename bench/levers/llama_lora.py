"""A Llama in 16 bits with LoRA adapters, in a loop of its own."""

import sys

import torch
from peft import LoraConfig, get_peft_model
from tiny import LENGTH, VOCABULARY, language_model

model = get_peft_model(language_model().to(torch.bfloat16), LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")).cuda()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
for _step in range(8):
    text = torch.randint(VOCABULARY, (int(sys.argv[1]), LENGTH), device="cuda")
    loss = model(input_ids=text, labels=text).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
