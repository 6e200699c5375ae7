"""A CUDA graph for each batch size, each with a memory pool of its own."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
graphs = []
with torch.no_grad():
    for batch in range(64, 8192, 64):
        x = torch.zeros(batch, 1024, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = net(x)  # named
        graphs.append((graph, x, y))
