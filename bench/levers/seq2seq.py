"""T5 of transformers in a loop of its own, with accumulated losses."""

import sys

import torch
from transformers import T5Config, T5ForConditionalGeneration


def main():
    batch = int(sys.argv[1])
    model = T5ForConditionalGeneration(T5Config(vocab_size=8000, d_model=256, d_ff=1024, num_layers=4, num_heads=4, d_kv=64, decoder_start_token_id=0))
    model.to("cuda").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    total = 0.0
    for _step in range(12):
        source, target = torch.randint(1, 8000, (batch, 256)).cuda(), torch.randint(1, 8000, (batch, 64)).cuda()
        loss = model(input_ids=source, labels=target).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()


main()
