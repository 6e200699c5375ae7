"""What the quick-start scripts share: a model by its configuration alone, a tokenizer of our own, data that needs no network."""

from __future__ import annotations

import os
import random

import torch

#: How many optimizer steps each script makes.
STEPS = int(os.environ.get("STEPS", "6"))
#: How often those that evaluate do so.
EVERY = int(os.environ.get("EVALUATE", "3"))
WORDS = "a of the in to and is was for it with as on be at by that this from or an are not".split()
LENGTH, VOCABULARY = 256, 8192


def language_model(layers: int = 4, length: int = 1024):
    """A small Llama with random weights, another one at each call."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=layers,
        num_attention_heads=12,
        max_position_embeddings=length,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return LlamaForCausalLM(config)


def tokenizer():
    """A word for each token, with what trainers ask of a tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate(["<pad>", "<s>", "</s>", "<unk>", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    named = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=words, padding_side="left", **named)


def sentence(shortest: int, longest: int, chance: random.Random) -> str:
    """Words, so many."""
    return " ".join(chance.choice(WORDS) for _ in range(chance.randint(shortest, longest)))


class Tokens(torch.utils.data.Dataset):
    """Rows of tokens of one length, with labels."""

    def __init__(self, rows: int = 4096) -> None:
        self.tokens = torch.randint(3, VOCABULARY, (rows, LENGTH), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = self.tokens[index]
        return {"input_ids": row, "labels": row}
