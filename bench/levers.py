"""Holds each lever's peak against the same script with the printed lines written in by hand.

    PYTHONPATH=$(scripts/python-package) $(scripts/python-env) bench/levers.py [NAME...] [--levers checkpoint,offload]

The scripts are small ones of each kind: a GPT, a vision transformer, a convolutional network, an encoder with a decoder, a mixture of experts, a Llama of
transformers. Each marks with `# levers` where lines may be written in, after its model and before its optimizer. Levers whose
lines are a sketch (options of the optimizer are written in; `step_in_backward`, `chunked_loss`, `accumulate` and `weights_bf16` are not) are left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import stalloc

COMMAND = Path(stalloc.__file__).parent / "_bin" / "stalloc"
GPU = ("--dry-run", "h100-80gb")

#: What a script begins and ends with.
BEGIN = """
import torch
from torch import nn
from torch.nn import functional as F
"""
END = """
# levers
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _step in range(4):
    loss = step(model)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""

SCRIPTS = {
    "gpt": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    def forward(self, x):
        return self.layer(x, is_causal=True, src_mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device))
class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.blocks, self.head = nn.Embedding(8000, 512), nn.ModuleList(Block() for _ in range(4)), nn.Linear(512, 8000)
    def forward(self, x):
        x = self.tokens(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)
model = GPT().cuda()
def step(model):
    text = torch.randint(8000, (4, 257)).cuda()
    return F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
""",
    "vit": """
class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 384, 16, 16)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True, norm_first=True), 6, enable_nested_tensor=False)
        self.head = nn.Linear(384, 100)
    def forward(self, x):
        return self.head(self.encoder(self.patches(x).flatten(2).transpose(1, 2)).mean(1))
model = ViT().cuda()
def step(model):
    return F.cross_entropy(model(torch.randn(16, 3, 224, 224, device="cuda")), torch.randint(100, (16,)).cuda())
""",
    "cnn": """
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))
    def forward(self, x):
        return F.relu(x + self.body(x))
model = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.Sequential(*(Block(64) for _ in range(4))), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).cuda()
def step(model):
    return F.cross_entropy(model(torch.randn(16, 3, 128, 128, device="cuda")), torch.randint(10, (16,)).cuda())
""",
    "seq2seq": """
model = nn.Transformer(256, 4, 3, 3, 1024, batch_first=True).cuda()
def step(model):
    return model(torch.randn(8, 128, 256, device="cuda"), torch.randn(8, 128, 256, device="cuda")).square().mean()
""",
    "moe": """
class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(256, 1024), nn.Linear(1024, 256)
    def forward(self, x):
        return self.second(F.gelu(self.first(x)))
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.router, self.experts = nn.Linear(256, 4), nn.ModuleList(Expert() for _ in range(4))
    def forward(self, x):
        weights = self.router(x).softmax(-1)
        return x + sum(weights[..., number, None] * expert(x) for number, expert in enumerate(self.experts))
class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
model = MoE().cuda()
def step(model):
    return model(torch.randn(4, 256, 256, device="cuda")).square().mean()
""",
    "llama": """
from transformers import LlamaConfig, LlamaForCausalLM
config = LlamaConfig(vocab_size=8000, hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2)
model = LlamaForCausalLM(config).cuda()
def step(model):
    text = torch.randint(8000, (4, 256)).cuda()
    return model(input_ids=text, labels=text).loss
""",
}

#: What is written into the call of the optimizer in place of lines.
OPTIONS = {"foreach_off": ", foreach=False", "fused": ", fused=True"}
WRITTEN = ("checkpoint", "checkpoint_every_second", "checkpoint_keep_matmuls", "offload", "offload_first_half", "autocast_bf16", "no_unused_gradients")


def ran(*words: str | Path) -> dict:
    done = subprocess.run([COMMAND, *words], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(map(str, words))} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout)


def peak_by_hand(folder: Path, text: str, ranks: int) -> int:
    script = folder / "by_hand.py"
    script.write_text(text)
    world = ("--world-size", str(ranks), "--rank", "0") if ranks > 1 else ()
    traces = Path(tempfile.mkdtemp(dir=folder))
    ran("trace", *GPU, *world, "--steps", "3", "--json", "-o", traces, "--", sys.executable, script)
    return max(device["peak_allocated"] for device in ran("info", traces, "--json")["devices"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*SCRIPTS, []], help="scripts; all by default")
    parser.add_argument("--levers", default=",".join((*WRITTEN, *OPTIONS, "fsdp2_over_2")), help="which levers")
    options = parser.parse_args()
    worst = 0.0
    for name in options.names or SCRIPTS:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            text = BEGIN + SCRIPTS[name] + END
            script = folder / f"{name}.py"
            script.write_text(text)
            answer = ran("levers", *GPU, "--only", options.levers, "--json", "--", sys.executable, script)
            print(f"{name}: {answer['base']['peak_allocated'] / 2**20:.1f} MiB as it is")
            for one in answer["skipped"]:
                print(f"  {one['name']}: {one['why']}")
            for one in answer["levers"]:
                if one["peak_allocated"] is None:
                    print(f"  {one['name']}: {one['error']['lines'][-1:]}")
                    continue
                lines = one["how"] if one["name"] not in OPTIONS else ""
                by_hand = text.replace("# levers", lines).replace("lr=1e-4", f"lr=1e-4{OPTIONS.get(one['name'], '')}")
                ranks = int(one["name"].rpartition("_")[2]) if one["name"].startswith("fsdp2") else 1
                peak = peak_by_hand(folder, by_hand, ranks)
                worst = max(worst, abs(one["peak_allocated"] / peak - 1))
                print(f"  {one['name']}: {one['peak_allocated'] / 2**20:.1f} MiB, by hand {peak / 2**20:.1f}", flush=True)
    print(f"the worst differs by {100 * worst:.3f} %")


if __name__ == "__main__":
    main()
