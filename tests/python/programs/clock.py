"""Four steps of ten products, after work on two streams whose times are looked at; prints them as JSON."""

import json

import torch

MIB = 1 << 20


def main() -> None:
    said = {}
    weight = torch.nn.Parameter(torch.zeros(8192, 8192, device="cuda", dtype=torch.bfloat16))
    side = torch.cuda.Stream()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    weight.detach() @ weight.detach()
    end.record()
    said["done at once"] = end.query()
    questions = 0
    while not end.query():
        questions += 1
    said["questions"] = questions
    said["product ms"] = begin.elapsed_time(end)

    rows, unaligned = weight.detach()[:, :1024], []
    for columns in (50304, 50257):
        for _ in range(2):
            begin.record()
            rows @ torch.empty(1024, columns, device="cuda", dtype=torch.bfloat16)
            end.record()
            torch.cuda.synchronize()
            unaligned.append(begin.elapsed_time(end))
    said["chosen ms"] = unaligned[0] - unaligned[1]
    said["unaligned"] = unaligned[3] / unaligned[1]
    torch.cuda.empty_cache()
    begin.record()
    torch.rand(2_000_000)
    end.record()
    said["drawn ms"] = begin.elapsed_time(end)

    host = torch.empty(256 * MIB, dtype=torch.uint8, pin_memory=True)
    block = torch.empty(256 * MIB, dtype=torch.uint8, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    begin.record(side)
    with torch.cuda.stream(side):
        host.copy_(block, non_blocking=True)
    end.record(side)
    block.record_stream(side)
    before = torch.cuda.memory_reserved()
    del block
    block = torch.empty(256 * MIB, dtype=torch.uint8, device="cuda")
    said["while it is copied"] = torch.cuda.memory_reserved() - before
    torch.cuda.synchronize()
    said["copy ms"] = begin.elapsed_time(end)
    del block
    again = [torch.empty(256 * MIB, dtype=torch.uint8, device="cuda") for _ in range(2)]
    said["once it is done"] = torch.cuda.memory_reserved() - before - said["while it is copied"]
    del again, host

    # Whether the host has these pages already differs from run to run.
    for size in range(50):
        torch.empty(100_000 + 37_000 * size).cuda()

    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(4):
        for _ in range(10):
            product = weight.detach() @ weight.detach()
        weight.grad = product
        optimizer.step()
    print(json.dumps(said))


if __name__ == "__main__":
    main()
