"""Trains the small GPT on batches of different lengths: mostly from a few buckets, now and then one never seen before."""

import random

import torch
from gpt import arguments, build

BUCKETS = (128, 256, 384, 512)


def main() -> None:
    parser = arguments()
    parser.add_argument("--odd", type=float, default=0.2, help="share of batches of any length")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    torch.manual_seed(options.seed)
    model = build(options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(options.steps):
        length = draw.randint(64, options.length) if draw.random() < options.odd else draw.choice(BUCKETS)
        length = min(length, options.length)
        model(torch.randint(options.vocabulary, (options.batch, length + 1)).cuda()).backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: length {length}, reserved {torch.cuda.memory_reserved() >> 20} MiB")


if __name__ == "__main__":
    main()
