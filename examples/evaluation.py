"""Trains the small GPT and evaluates it, on a larger batch without gradients, after every third step."""

import torch
from gpt import arguments, build


def main() -> None:
    options = arguments().parse_args()
    torch.manual_seed(options.seed)
    model = build(options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def text(batch: int) -> torch.Tensor:
        return torch.randint(options.vocabulary, (batch, options.length + 1)).cuda()

    for step in range(options.steps):
        model(text(options.batch)).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 3 == 2:
            model.eval()
            with torch.no_grad():
                loss = sum(model(text(2 * options.batch)) for _ in range(2)) / 2
            model.train()
            print(f"step {step}: evaluated, loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
