"""Trains a Hugging Face Llama from its configuration alone (nothing is downloaded) and writes what it cost as JSON.

bf16 weights, AdamW, activations recomputed. The figures are PyTorch's own, so the same program serves every allocator; what
stalloc says of itself is added where the process runs under it. A full GPU is a result, not an error.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

#: Steps before times count: the first makes the optimizer's states.
WARM_UP = 2


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, required=True)
    parser.add_argument("--hidden", type=int, required=True)
    parser.add_argument("--vocabulary", type=int, default=32000)
    parser.add_argument("--length", type=int, default=4096, help="tokens of a sequence")
    parser.add_argument("--micro-batch", type=int, required=True, help="sequences at once")
    parser.add_argument("--micro-batches", type=int, default=2, help="accumulated in a step")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--output", type=Path, required=True, help="where the figures go")
    return parser.parse_args()


def build(options: argparse.Namespace) -> Any:
    """The model, its weights random."""
    config = LlamaConfig(
        vocab_size=options.vocabulary,
        hidden_size=options.hidden,
        intermediate_size=options.hidden * 11 // 4,
        num_hidden_layers=options.layers,
        num_attention_heads=max(options.hidden // 128, 1),
        max_position_embeddings=options.length,
        use_cache=False,
        attn_implementation="sdpa",
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    model.train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def train(options: argparse.Namespace, figures: dict[str, Any]) -> None:
    """All steps, timed."""
    torch.manual_seed(0)
    model = build(options)
    figures["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    generator = torch.Generator().manual_seed(0)
    seconds = []
    for _ in range(options.steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(options.micro_batches):
            text = torch.randint(options.vocabulary, (options.micro_batch, options.length), generator=generator).cuda()
            loss = model(input_ids=text, labels=text).loss / options.micro_batches
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    figures["loss"] = loss.item()
    if seconds[WARM_UP:]:
        tokens = options.micro_batches * options.micro_batch * options.length
        figures["tokens_per_second"] = tokens / statistics.median(seconds[WARM_UP:])


def main() -> None:
    options = arguments()
    figures: dict[str, Any] = {"micro_batch": options.micro_batch, "oom": False}
    try:
        train(options, figures)
    except torch.cuda.OutOfMemoryError as error:
        figures.update(oom=True, message=str(error).splitlines()[0])
    free, total = torch.cuda.mem_get_info()
    figures.update(
        peak_allocated=torch.cuda.max_memory_allocated(),
        peak_reserved=torch.cuda.max_memory_reserved(),
        used_at_the_end=total - free,
        total=total,
        device=torch.cuda.get_device_name(),
        torch=torch.__version__,
        cuda=torch.version.cuda,
    )
    if "stalloc" in sys.modules:
        figures["stalloc"] = sys.modules["stalloc"].memory_stats()
    options.output.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
