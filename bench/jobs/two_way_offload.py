"""Every large saved tensor goes to page-locked memory on one stream in the forward pass, and comes back on another in the backward pass.

Batches are made on the device and no loss is read: the host never waits, so how far it runs ahead decides how much memory waits for the
two streams. On an H100 such a job held 20.3 GiB natively after 5 steps, 28.9 after 24, expandable segments 32.8; a step took 353 ms.
"""

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional
from training import Decoder, on_gpu, start


class Offload(saved_tensors_hooks):
    """Keeps saved tensors above a size on the host."""

    def __init__(self, least: int) -> None:
        out, back = torch.cuda.Stream(), torch.cuda.Stream()

        def pack(saved: Tensor) -> Tensor | tuple[Tensor, torch.cuda.Event]:
            if saved.numel() * saved.element_size() <= least or not saved.is_cuda:
                return saved
            out.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(out):
                host = torch.empty(saved.shape, dtype=saved.dtype, pin_memory=True).copy_(saved, non_blocking=True)
            saved.record_stream(out)
            return host, out.record_event()

        def unpack(kept: Tensor | tuple[Tensor, torch.cuda.Event]) -> Tensor:
            if isinstance(kept, Tensor):
                return kept
            host, written = kept
            back.wait_event(written)
            with torch.cuda.stream(back):
                saved = host.to("cuda", non_blocking=True)
            torch.cuda.current_stream().wait_stream(back)
            saved.record_stream(torch.cuda.current_stream())
            return saved

        super().__init__(pack, unpack)


def main() -> None:
    options, _ = start(__doc__, batch=8, length=1024, vocabulary=32000, width=1536, layers=14)
    model = on_gpu(lambda: Decoder(options.vocabulary, options.width, options.width // 128, options.layers), torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    offload = Offload(1 << 20)
    for step in range(options.steps):
        text = torch.randint(options.vocabulary, (options.batch, options.length), device="cuda")
        with offload:
            logits = model.head(model.hidden(text[:, :-1]))
            loss = functional.cross_entropy(logits.flatten(0, 1).float(), text[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}")


if __name__ == "__main__":
    main()
