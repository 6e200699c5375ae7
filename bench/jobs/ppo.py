"""PPO on a language model: it writes text with a growing cache of keys and values, then policy and critic are updated.

Prompts and answers have drawn lengths, and the number of updates is drawn: they end early when the policy has changed
enough. Steps are marked.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional
from training import Decoder, on_gpu, start, tokens

import stalloc


def write(model: Decoder, prompt: Tensor, length: int, chunk: int) -> None:
    """Write ``length`` tokens, with the keys and values of each layer grown by concatenation."""
    text = prompt
    caches = [None] * len(model.blocks)
    for first in range(0, length, chunk):
        x = model.tokens(text)
        for layer, block in enumerate(model.blocks):
            h = block.norm1(x)
            grown = block.attention.pair(h).unflatten(2, (2, block.attention.heads, -1)).permute(2, 0, 3, 1, 4)
            caches[layer] = grown if caches[layer] is None else torch.cat([caches[layer], grown], 3)
            q = block.attention.query(h).unflatten(2, (block.attention.heads, -1)).transpose(1, 2)
            found = functional.scaled_dot_product_attention(q, *caches[layer])
            x = x + block.attention.out(found.transpose(1, 2).flatten(2))
            x = x + block.forward2(block.norm2(x))
        chances = model.head(model.norm(x[:, -1:])).float().softmax(2)
        text = torch.multinomial(chances[:, 0], chunk)


def chosen(model: Decoder, text: Tensor) -> Tensor:
    """The log-probability of each token."""
    logits = model.head(model.hidden(text[:, :-1]))
    return logits.float().log_softmax(2).gather(2, text[:, 1:, None])[..., 0]


def main() -> None:
    options, draw = start(__doc__, batch=16, vocabulary=32000, width=1024, layers=12, chunk=64)
    size = (options.vocabulary, options.width, options.width // 64)
    policy = on_gpu(lambda: Decoder(*size, options.layers), torch.bfloat16)
    reference = on_gpu(lambda: Decoder(*size, options.layers), torch.bfloat16).requires_grad_(False)
    critic = on_gpu(lambda: Decoder(*size, options.layers // 2), torch.bfloat16)
    worth = on_gpu(lambda: nn.Linear(options.width, 1), torch.bfloat16)
    first = torch.optim.AdamW(policy.parameters(), lr=1e-6)
    second = torch.optim.AdamW([*critic.parameters(), *worth.parameters()], lr=1e-5)
    for step in range(options.steps):
        with stalloc.step():
            prompt, answer = draw.randint(32, 256), draw.randint(64, 640)
            with torch.no_grad():
                write(policy, tokens(options.vocabulary, options.batch, prompt), answer, options.chunk)
                text = tokens(options.vocabulary, options.batch, prompt + answer)
                old, base = chosen(policy, text), chosen(reference, text)
                values = worth(critic.hidden(text))[:, 1:, 0].float()
                gains = (old - base).flip(1).cumsum(1).flip(1) - values
            for _ in range(draw.randint(1, 4)):
                for rows in torch.arange(options.batch).split(8):
                    part = text[rows[0] : rows[-1] + 1]
                    known = slice(int(rows[0]), int(rows[-1]) + 1)
                    ratio = (chosen(policy, part) - old[known]).exp()
                    loss = -torch.minimum(ratio * gains[known], ratio.clamp(0.8, 1.2) * gains[known]).mean()
                    loss.backward()
                    (worth(critic.hidden(part))[:, 1:, 0].float() - values[known]).square().mean().backward()
                first.step()
                second.step()
                first.zero_grad()
                second.zero_grad()
        print(f"step {step}: {prompt} and {answer} tokens")


if __name__ == "__main__":
    main()
