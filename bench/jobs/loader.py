"""Images of drawn sizes that are copied and prepared on a loader's stream, some batches ahead of the one that is trained on."""

from collections import deque

import torch
from torch import Tensor, nn
from training import Backbone, on_gpu, start


def main() -> None:
    options, draw = start(__doc__, batch=16, ahead=2)
    model = on_gpu(lambda: nn.Sequential(Backbone()))
    head = nn.Linear(512, 1000, device="cuda")
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1, momentum=0.9)
    stream = torch.cuda.Stream()
    ready: deque[Tensor] = deque()

    def load() -> None:
        side = 32 * draw.randint(5, 10)
        raw = torch.empty((options.batch, 3, side + 32, side + 32), dtype=torch.uint8, pin_memory=True)
        with torch.cuda.stream(stream):
            images = raw.to("cuda", non_blocking=True).float() / 255
            mean = images.mean((2, 3), keepdim=True)
            ready.append(((images - mean) / (images.std((2, 3), keepdim=True) + 1))[:, :, 16:-16, 16:-16].contiguous())

    for _ in range(options.ahead):
        load()
    for step in range(options.steps):
        torch.cuda.current_stream().wait_stream(stream)
        images = ready.popleft()
        images.record_stream(torch.cuda.current_stream())
        load()
        loss = nn.functional.cross_entropy(head(model(images)[-1].mean((2, 3))), torch.zeros(len(images), dtype=torch.long, device="cuda"))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: {images.shape[2]}")
        del images, loss


if __name__ == "__main__":
    main()
