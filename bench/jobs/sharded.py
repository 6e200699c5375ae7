"""Layers whose weights are gathered on a stream of their own before they are needed, the next ones ahead, as FSDP does.

Texts have drawn lengths. With ``--recorded 1`` gathered weights are marked with record_stream, as FSDP's first version did; else the
program makes the gathering stream wait before it lets go of them.
"""

import torch
from torch import Tensor
from torch.nn import functional
from training import Decoder, on_gpu, skewed, start, tokens


class Gatherer:
    """Makes the full weights of one layer at a time from their shards, on its own stream."""

    def __init__(self, sizes: list[int], ranks: int, ahead: int, recorded: bool) -> None:
        self.shards = [torch.empty(size // ranks, dtype=torch.bfloat16, device="cuda") for size in sizes]
        self.stream, self.ranks, self.ahead, self.recorded = torch.cuda.Stream(), ranks, ahead, recorded
        self.full: dict[int, Tensor] = {}

    def gather(self, layer: int) -> None:
        if not 0 <= layer < len(self.shards) or layer in self.full:
            return
        with torch.cuda.stream(self.stream):
            self.full[layer] = self.shards[layer].repeat(self.ranks)

    def use(self, layer: int, step: int) -> Tensor:
        """The weights of a layer; the gathering of those that come next begins."""
        for next_one in range(layer, layer + step * (self.ahead + 1), step):
            self.gather(next_one)
        torch.cuda.current_stream().wait_stream(self.stream)
        return self.full[layer]

    def drop(self, layer: int) -> None:
        if self.recorded:
            self.full[layer].record_stream(torch.cuda.current_stream())
        else:
            self.stream.wait_stream(torch.cuda.current_stream())
        del self.full[layer]

    def scatter(self, layer: int, gradient: Tensor) -> None:
        """Reduces a layer's gradient to this rank's shard on the stream of gathering."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.shards[layer] += gradient.view(self.ranks, -1).float().sum(0).to(torch.bfloat16)
        gradient.record_stream(self.stream)


def main() -> None:
    options, draw = start(__doc__, batch=2, vocabulary=16000, width=2048, layers=16, ranks=8, ahead=2, recorded=0)
    model = on_gpu(lambda: Decoder(options.vocabulary, options.width, options.width // 128, 1), torch.bfloat16)
    size = 4 * options.width * options.width
    gatherer = Gatherer([size] * options.layers, options.ranks, options.ahead, bool(options.recorded))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(options.steps):
        x = model.hidden(tokens(options.vocabulary, options.batch, skewed(draw, 256, 4000)))
        inputs = []
        for layer in range(options.layers):
            weight = gatherer.use(layer, 1).view(4, options.width, options.width)
            inputs.append(x.detach())
            with torch.no_grad():
                x = x + functional.gelu(x @ weight[0]) @ weight[1] + functional.gelu(x @ weight[2]) @ weight[3]
            gatherer.drop(layer)
        gradient = torch.empty_like(x)
        for layer in reversed(range(options.layers)):
            weight = gatherer.use(layer, -1).clone().requires_grad_()
            inner = weight.view(4, options.width, options.width)
            given = inputs.pop().requires_grad_()
            out = given + functional.gelu(given @ inner[0]) @ inner[1] + functional.gelu(given @ inner[2]) @ inner[3]
            out.backward(gradient)
            gradient = given.grad
            gatherer.scatter(layer, weight.grad)
            gatherer.drop(layer)
            del weight, inner, given, out
        loss = model.head(model.hidden(tokens(options.vocabulary, 1, 128))).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}")


if __name__ == "__main__":
    main()
