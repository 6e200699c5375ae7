"""Four steps of three blocks of 64 MiB, each copied to the host by a second stream that is done before the next, and after something small."""

import torch

SIZE = 64 << 20


def main() -> None:
    weight = torch.nn.Parameter(torch.zeros(8, device="cuda"))
    host, side = torch.empty(SIZE, dtype=torch.uint8, pin_memory=True), torch.cuda.Stream()
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(4):
        for _ in range(3):
            block = torch.empty(SIZE, dtype=torch.uint8, device="cuda")
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                host.copy_(block, non_blocking=True)
            block.record_stream(side)
            del block
            torch.empty(8, device="cuda")
            torch.cuda.synchronize()
        weight.grad = torch.zeros_like(weight)
        optimizer.step()


if __name__ == "__main__":
    main()
