"""Three steps of a model of Llama-2-7B's size (or of as many layers as said), and what they took."""
import hashlib
import json
import resource
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.cuda.memory._record_memory_history(max_entries=1_000_000, context=None)
torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=int(sys.argv[1]), use_cache=False))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    tokens = torch.zeros(1, 1024, dtype=torch.long, device="cuda")
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
events = torch.cuda.memory._snapshot()["device_traces"][0]
requests = [(event["action"], event["size"], event["stream"]) for event in events]
places = [event["addr"] for event in events]
print(json.dumps({
    "parameters": sum(parameter.numel() for parameter in model.parameters()),
    "peak": torch.cuda.max_memory_allocated(),
    "resident": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
    "requests": [len(requests), hashlib.sha256(repr(requests).encode()).hexdigest()],
    "places": hashlib.sha256(repr(places).encode()).hexdigest(),
}))  # fmt: skip
