"""Models of transformers whose masks, lengths and routes are decided by values on the device."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

device = "cuda" if torch.cuda.is_available() else "cpu"
sizes = dict(vocab_size=97, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2)
torch.manual_seed(1)
model = LlamaForCausalLM(LlamaConfig(**sizes, attn_implementation="sdpa")).to(device)
tokens = torch.randint(3, 97, (3, 12)).to(device)
lengths = torch.tensor([12, 7, 9]).to(device)
padded = (torch.arange(12, device=device) < lengths[:, None]).long()
positions = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3, 0, 1, 2]]).to(device)
for options in (
    {"attention_mask": padded},
    {"attention_mask": torch.ones_like(padded)},
    {"position_ids": positions, "attention_mask": None},
    {"position_ids": torch.arange(12, device=device)[None], "attention_mask": None},
):
    rows = tokens[:1] if "position_ids" in options else tokens
    model(rows, labels=rows, use_cache=False, **options).loss.backward()
# As packing collators do it: what is no padding, in one row.
flat = tokens[padded.bool()][None]
model(flat, position_ids=torch.cat([torch.arange(int(n)) for n in lengths]).to(device)[None], use_cache=False).logits.sum().backward()
model.generate(tokens, attention_mask=padded, max_new_tokens=5, do_sample=False, eos_token_id=None, pad_token_id=0)
experts = MixtralForCausalLM(MixtralConfig(**sizes, num_local_experts=4, num_experts_per_tok=2, output_router_logits=True)).to(device)
experts(tokens, attention_mask=padded, labels=tokens).loss.backward()
