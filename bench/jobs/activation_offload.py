"""Long texts of drawn length whose activations go to the host in the forward pass and come back in the backward pass.

Transfers run on a stream of their own; what is kept on the device depends on how long the text is.
"""

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from training import Decoder, on_gpu, start, tokens


class Offload(saved_tensors_hooks):
    """Keeps large saved tensors on the host, copied on another stream."""

    def __init__(self, least: int) -> None:
        self.stream = torch.cuda.Stream()

        def away(saved: Tensor) -> Tensor | tuple[Tensor]:
            if saved.numel() < least or isinstance(saved, nn.Parameter) or not saved.is_cuda:
                return saved
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                host = torch.empty_like(saved, device="cpu").copy_(saved, non_blocking=True)
            saved.record_stream(self.stream)
            return (host,)

        def back(kept: Tensor | tuple[Tensor]) -> Tensor:
            if isinstance(kept, Tensor):
                return kept
            with torch.cuda.stream(self.stream):
                saved = kept[0].to("cuda", non_blocking=True)
            torch.cuda.current_stream().wait_stream(self.stream)
            saved.record_stream(torch.cuda.current_stream())
            return saved

        super().__init__(away, back)


def main() -> None:
    options, draw = start(__doc__, batch=1, vocabulary=32000, width=2048, layers=12, every=3)
    model = on_gpu(lambda: Decoder(options.vocabulary, options.width, options.width // 128, options.layers), torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    offload = Offload(1 << 21)
    for step in range(options.steps):
        text = tokens(options.vocabulary, options.batch, draw.randint(1500, 7000))
        x = model.tokens(text) + model.places(torch.arange(text.shape[1], device="cuda"))
        for layer, block in enumerate(model.blocks):
            if layer % options.every == 0:
                with offload:
                    x = block(x, causal=True)
            else:
                x = block(x, causal=True)
        h = model.norm(x)
        losses = zip(h[:, :-1].split(1024, 1), text[:, 1:].split(1024, 1))
        loss = sum(nn.functional.cross_entropy(model.head(part).flatten(0, 1), aim.flatten()) for part, aim in losses)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: length {text.shape[1]}")


if __name__ == "__main__":
    main()
