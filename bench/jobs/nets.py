"""Three training steps of a model of torchvision, or with `hf-` before its name of transformers.

    python nets.py resnet50 amp last        fp16 with a scaler; the channels last in memory
    python nets.py hf-llama bf16
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

PICTURES, SENTENCES, LENGTH = 32, 8, 512
STEPS = 3


def language(kind: str, ways: list[str]) -> tuple[nn.Module, Callable[[], Tensor]]:
    import transformers as t

    llama = dict(hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4)
    makes = {
        "bert": lambda: t.BertForMaskedLM(t.BertConfig()),
        "gpt2": lambda: t.GPT2LMHeadModel(t.GPT2Config()),
        "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**llama)),
    }
    with torch.device("cuda"):
        model = makes[kind]()
    model.train()
    model = model.bfloat16() if "bf16" in ways else model

    def loss() -> Tensor:
        words = torch.randint(1000, (SENTENCES, LENGTH)).cuda()
        return model(input_ids=words, labels=words).loss

    return model, loss


def pictures(name: str, ways: list[str]) -> tuple[nn.Module, Callable[[], Tensor]]:
    import torchvision

    layout = torch.channels_last if "last" in ways else torch.contiguous_format
    model = torchvision.models.get_model(name, weights=None).cuda().to(memory_format=layout)

    def loss() -> Tensor:
        shown = torch.randn(PICTURES, 3, 224, 224).cuda().to(memory_format=layout)
        kinds = torch.randint(1000, (PICTURES,)).cuda()
        found = model(shown)
        return functional.cross_entropy(found, kinds)

    return model, loss


def main() -> None:
    name, *ways = sys.argv[1:]
    torch.manual_seed(0)
    is_language = name.startswith("hf-")
    model, loss = language(name.removeprefix("hf-"), ways) if is_language else pictures(name, ways)
    optimizer = torch.optim.AdamW(model.parameters()) if is_language else torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda", enabled="amp" in ways)
    for _ in range(STEPS):
        with torch.autocast("cuda", torch.float16, enabled="amp" in ways):
            found = loss()
        scaler.scale(found).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
