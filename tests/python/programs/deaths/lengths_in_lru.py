"""Features of clips of many lengths are kept in a cache that drops the oldest: what it holds does not grow, but lies in pieces."""
import collections
import random
import torch
draw = random.Random(1)
cache = collections.OrderedDict()
encoder = torch.nn.Linear(1024, 1024).cuda().requires_grad_(False)
with torch.no_grad():
    for clip in range(3000):
        key = draw.randrange(100_000)
        length = draw.randint(300, 9000)
        cache[key] = encoder(torch.randn(length, 1024, device="cuda"))  # named
        while sum(len(one) for one in cache.values()) * 4096 > 610 << 20:
            cache.popitem(last=False)
