"""A function within a function calls itself, and so keeps itself and what it gathers until the garbage collector runs."""
import torch

def check(caches):
    gathered = []

    def gather(one):
        if isinstance(one, list):
            for each in one:
                gather(each)
        else:
            gathered.append(one)

    gather(caches)
    return sum(float(one[0, 0]) for one in gathered)

for request in range(500):
    caches = [[torch.zeros(1024, 1024, device="cuda") for _ in range(2)] for _ in range(4)]  # named
    check(caches)
