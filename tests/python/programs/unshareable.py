"""Shares what it may not, and more than it has descriptors for; prints what it was told."""

import json
import os
import resource

import torch

MIB, GIB = 1 << 20, 1 << 30


def share(tensor):
    try:
        tensor.untyped_storage()._share_cuda_()
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return None


if __name__ == "__main__":
    said = {}
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = torch.zeros(1000, device="cuda")
    said["a graph's"] = share(captured)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
    first = torch.empty(4 * GIB, dtype=torch.uint8, device="cuda")
    said["below the hard limit"] = share(first)
    said["raised"] = resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    second = torch.empty(16 * MIB, dtype=torch.uint8, device="cuda")
    said["beyond the hard limit"] = share(second)
    print(json.dumps(said), flush=True)
    os._exit(0)  # nothing more can be opened here
