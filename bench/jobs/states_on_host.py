"""Optimizer states that live on the host: each comes on one stream, is used, and goes back on another, while the next one comes."""

import torch
from training import Decoder, on_gpu, skewed, start, tokens


def main() -> None:
    options, draw = start(__doc__, batch=4, vocabulary=16000, width=1280, layers=10)
    model = on_gpu(lambda: Decoder(options.vocabulary, options.width, options.width // 64, options.layers))
    comes, goes = torch.cuda.Stream(), torch.cuda.Stream()
    here = torch.cuda.current_stream()
    states = [torch.zeros((2, parameter.numel()), pin_memory=True) for parameter in model.parameters()]
    for step in range(options.steps):
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(tokens(options.vocabulary, options.batch, skewed(draw, 128, 2000)))
        loss.backward()
        coming = None
        for parameter, state in [*zip(model.parameters(), states), (None, None)]:
            brought = None
            if state is not None:
                with torch.cuda.stream(comes):
                    brought = state.to("cuda", non_blocking=True)
            if coming is not None:
                of, on_host, on_gpu_now = coming
                here.wait_stream(comes)
                on_gpu_now.record_stream(here)
                flat = of.grad.flatten()
                on_gpu_now[0].lerp_(flat, 0.1)
                on_gpu_now[1].lerp_(flat.square(), 0.05)
                of.data.add_((on_gpu_now[0] / (on_gpu_now[1].sqrt() + 1e-8)).view_as(of), alpha=-1e-4)
                goes.wait_stream(here)
                with torch.cuda.stream(goes):
                    on_gpu_now.record_stream(goes)
                    on_host.copy_(on_gpu_now, non_blocking=True)
                of.grad = None
            coming = None if state is None else (parameter, state, brought)
        del brought, coming, on_gpu_now
        print(f"step {step}")


if __name__ == "__main__":
    main()
