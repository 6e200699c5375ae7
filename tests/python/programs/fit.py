"""A small training whose memory grows with --batch and --width in a straight line, and that can refuse and fail on demand."""

import argparse
import os
import sys

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=1)
parser.add_argument("--width", type=int, default=1024)
parser.add_argument("--most", type=int, default=1000, help="larger batches are refused")
parser.add_argument("--multiple", type=int, default=1, help="other batches are refused")
parser.add_argument("--fail", action="store_true")
parser.add_argument("--convolution", action="store_true")
parser.add_argument("--loaded", action="store_true", help="libraries and a graph are used, whose kernels take memory")
parser.add_argument("--pipeline", type=int, help="stages of a pipeline, the second of which holds more")
parser.add_argument("--limit", type=float, default=1.0, help="the share of the GPU that the program allows itself")
parser.add_argument("--workspace", type=int, default=0, help="MiB that each step asks for, and does without")
options = parser.parse_args()
if not 0 < options.batch <= options.most or options.batch % options.multiple:
    parser.error(f"a batch of {options.batch} is refused")
if options.fail:
    print("the data is not there", file=sys.stderr)
    raise FileNotFoundError("/data/train.bin")

import torch  # noqa: E402  (what is refused is refused soon)

torch.cuda.set_per_process_memory_fraction(options.limit)

rank, world_size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
if world_size > 1:
    import torch.distributed as dist

    dist.init_process_group("nccl")
    dist.new_group([rank])
    if options.pipeline:
        stage = world_size // options.pipeline
        groups = [dist.new_group(range(first, world_size, stage)) for first in range(stage)]
        message = torch.zeros(8, device="cuda")
        dist.batch_isend_irecv([dist.P2POp(dist.isend, message, (rank + stage) % world_size, groups[rank % stage])])[0].wait()
        if rank // stage == 1:
            more = torch.empty(16 << 20, device="cuda")
    if rank == world_size - 1:  # as the last stage of a pipeline, which has the loss
        held = torch.empty(8 << 20, device="cuda")

model = torch.nn.Sequential(*(torch.nn.Linear(options.width, options.width, bias=False) for _ in range(4))).cuda()
if options.convolution:
    torch.nn.Conv2d(1, 1, 1)
if options.loaded:
    torch.nn.Conv2d(1, 1, 1, device="cuda")(torch.zeros(1, 1, 8, 8, device="cuda"))
    torch.fft.fft(torch.linalg.cholesky(torch.eye(4, device="cuda")))
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros(8, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _step in range(4):
    data = torch.zeros(options.batch * 1024, options.width, device="cuda")
    loss = model(data).square().mean()
    if options.workspace:
        try:
            torch.empty(options.workspace << 20, dtype=torch.uint8, device="cuda")
        except torch.cuda.OutOfMemoryError:
            pass
    loss.backward()
    if world_size > 1:
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
    print("free", *torch.cuda.mem_get_info())
    optimizer.step()
    optimizer.zero_grad()
