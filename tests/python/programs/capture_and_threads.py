"""Captures a graph while another thread asks for memory on a stream of its own, and replays it: raises where that ended the capture."""

import threading

import torch

MIB = 1 << 20
side = torch.cuda.Stream()


def ask():
    with torch.cuda.stream(side):
        for size in (3 * MIB, 5 * MIB, 30 * MIB):
            torch.empty(size, device="cuda").record_stream(torch.cuda.default_stream())


static = torch.zeros(400, 512, device="cuda")
ask()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    output = static + 1
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    output = output + 1
graph.replay()
print(f"replayed, {output.numel()} elements")
