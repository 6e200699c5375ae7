"""A prefetcher has the next forty batches on the GPU, on a stream of its own."""
import collections
import torch
from torch import nn

class Prefetcher:
    def __init__(self, loader, ahead=40):
        self.loader, self.count = iter(loader), ahead
        self.stream, self.ahead = torch.cuda.Stream(), collections.deque()

    def fill(self):
        with torch.cuda.stream(self.stream):
            while len(self.ahead) < self.count:
                self.ahead.append(next(self.loader).to("cuda", non_blocking=True))  # named

    def next(self):
        self.fill()
        torch.cuda.current_stream().wait_stream(self.stream)
        batch = self.ahead.popleft()
        batch.record_stream(torch.cuda.current_stream())
        return batch

def loader():
    while True:
        yield torch.randn(16, 3, 256, 256)

net = nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU(), nn.Conv2d(32, 10, 1)).cuda()
optimizer = torch.optim.Adam(net.parameters())
batches = Prefetcher(loader())
for step in range(20):
    net(batches.next()).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
