"""Each step stacks its last four frames and puts them into a replay memory on the GPU, which is long enough never to be full."""
import collections
import torch

net = torch.nn.Sequential(torch.nn.Conv2d(4, 16, 8, 4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(6)).cuda()
memory = collections.deque(maxlen=100_000)
frames = collections.deque([torch.zeros(256, 256, device="cuda")] * 4, maxlen=4)
net(torch.stack(tuple(frames))[None])
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(5000):
    frames.append(torch.randn(256, 256, device="cuda"))
    memory.append(torch.stack(tuple(frames)))  # named
    batch = torch.stack([memory[(7 * i) % len(memory)] for i in range(8)])
    net(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
