"""Trains a Hugging Face Llama from its configuration alone: nothing is downloaded.

    stalloc trace --dry-run h100-80gb --steps 3 -o traces -- python examples/llama.py --layers 32 --checkpoint
    stalloc fit --dry-run h100-80gb --vary MB=1..64 -- python examples/llama.py --llama3 --layers 32 --checkpoint --batch {MB} --length 1024
"""

import argparse
import random

import torch
from transformers import LlamaConfig, LlamaForCausalLM


def draw_length(draw: random.Random, lengths: str) -> int:
    """One of a list of lengths, or any of a range."""
    if "-" in lengths:
        least, most = lengths.split("-")
        return draw.randint(int(least), int(most))
    return int(draw.choice(lengths.split(",")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4, help="32 for Llama-2-7B and Llama-3-8B")
    parser.add_argument("--llama3", action="store_true", help="the sizes of Llama-3-8B in place of Llama-2-7B's")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--lengths", help="draw each step's length: from a list, as 512,1024, or a range, as 256-2048")
    parser.add_argument("--seed", type=int, default=0, help="of the text and the lengths")
    parser.add_argument("--checkpoint", action="store_true", help="recompute activations")
    options = parser.parse_args()
    config = LlamaConfig(
        vocab_size=128_256 if options.llama3 else 32_000,
        hidden_size=4096,
        intermediate_size=14_336 if options.llama3 else 11_008,
        num_hidden_layers=options.layers,
        num_attention_heads=32,
        num_key_value_heads=8 if options.llama3 else 32,
        max_position_embeddings=8192 if options.llama3 else 4096,
        use_cache=False,
        attn_implementation="sdpa",
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    model.train()
    if options.checkpoint:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    generator = torch.Generator().manual_seed(options.seed)
    draw = random.Random(options.seed)
    for step in range(options.steps):
        length = draw_length(draw, options.lengths) if options.lengths else options.length
        text = torch.randint(config.vocab_size, (options.batch, length), generator=generator).cuda()
        loss = model(input_ids=text, labels=text).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.3f}, peak {torch.cuda.max_memory_allocated() >> 20} MiB")


if __name__ == "__main__":
    main()
