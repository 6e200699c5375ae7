"""torchtune: a Llama of its builders, its loss in chunks, activation checkpointing and its 8-bit-free optimizer step."""

import torch
import torchao.quantization
from tiny import LENGTH, STEPS, VOCABULARY

for name in ("int4_weight_only", "int8_dynamic_activation_int4_weight"):  # which torchtune imports and torchao 0.17 has dropped
    setattr(torchao.quantization, name, getattr(torchao.quantization, name, None))

from torchtune import training
from torchtune.models.llama3 import llama3
from torchtune.modules import TransformerSelfAttentionLayer
from torchtune.modules.loss import CEWithChunkedOutputLoss

with training.set_default_dtype(torch.bfloat16), torch.device("cuda"):
    model = llama3(
        vocab_size=VOCABULARY, num_layers=4, num_heads=12, num_kv_heads=4, embed_dim=768, max_seq_len=LENGTH, intermediate_dim=2048
    )
training.set_activation_checkpointing(model, auto_wrap_policy={TransformerSelfAttentionLayer})
loss_function = CEWithChunkedOutputLoss()
model.set_num_output_chunks(loss_function.num_output_chunks)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, fused=True)
for _ in range(STEPS):
    tokens = torch.randint(VOCABULARY, (16, LENGTH)).cuda()
    loss = loss_function(model(tokens), tokens)
    loss.backward()
    training.scale_grads(model, torch.tensor(1 / tokens.numel()))
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
