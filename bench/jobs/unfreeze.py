"""Fine-tuning of an encoder that is unfrozen from the top, a few layers at a time, on texts of drawn length.

Each stage keeps more activations, gradients and optimizer states than the one before.
"""

import torch
from torch import nn
from torch.nn import functional
from training import Block, on_gpu, skewed, start, tokens


def main() -> None:
    options, draw = start(__doc__, batch=32, vocabulary=50000, width=1024, layers=24, stage=4, classes=5)
    words = on_gpu(lambda: nn.Embedding(options.vocabulary, options.width)).requires_grad_(False)
    width = options.width
    blocks = on_gpu(lambda: nn.ModuleList(Block(width, width // 64) for _ in range(options.layers))).requires_grad_(False)
    head = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, options.classes)).cuda()
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-4)
    frozen = options.layers
    for step in range(options.steps):
        if step and step % options.stage == 0 and frozen:
            first = max(0, frozen - 4)
            for block in blocks[first:frozen]:
                optimizer.add_param_group({"params": list(block.requires_grad_(True).parameters())})
            frozen = first
        length = skewed(draw, 32, 512)
        with torch.autocast("cuda", torch.bfloat16):
            x = words(tokens(options.vocabulary, options.batch, length))
            for block in blocks:
                x = functional.dropout(block(x), 0.1)
            loss = functional.cross_entropy(head(x[:, 0]), tokens(options.classes, options.batch))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: length {length}, {options.layers - frozen} layers trained")


if __name__ == "__main__":
    main()
