"""BERT with the Trainer of transformers."""

import sys

import torch
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        row = torch.randint(8000, (256,))
        return {"input_ids": row, "labels": row}


model = BertForMaskedLM(BertConfig(vocab_size=8000, hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536))
arguments = TrainingArguments(output_dir="out", max_steps=12, per_device_train_batch_size=int(sys.argv[1]), save_strategy="no", report_to="none")
# before the trainer
trainer = Trainer(model, arguments, train_dataset=Texts())
trainer.train()
