"""Sleeps and wakes over host memory in forked processes that are killed, or that find no host memory; prints what is wrong.

Pages come and go behind the tensors, so that a wrong byte is seen and an access to what sleeps ends the process.
"""

import json
import os
import random
import resource
import signal
import sys
import time

os.environ["STALLOC_HOST_PAGES"] = "1"
import torch
import host_memory
from stalloc import _native

MIB = 1 << 20
chance = random.Random(5)
counts = {"killed": 0, "refused": 0, "went on": 0}


def tensors(count):
    """Tensors, and what they hold."""
    made = [torch.arange(size) * (number + 1) for number, size in enumerate([7, 3000, MIB // 8, MIB] * count)]
    return made, [int(values.sum()) for values in made]


def is_whole(made, sums):
    return [int(values.sum()) for values in made] == sums


def sleep():
    return _native.serve_sleep(-1, [], [])


def wake():
    return _native.serve_wake(-1, [])


def serve_for_ever(ready):
    """Until it is killed: its parent knows by a byte that it sleeps and wakes now."""
    host_memory.learn()
    made, sums = tensors(4)
    while True:
        sleep()
        wake()
        os.write(ready, b"." if is_whole(made, sums) else b"!")


def limited(share, grows):
    """Finds a share of the host memory that it needs. All is where it was, and with more memory it goes on."""
    host_memory.learn()
    made, sums = tensors(2)
    lives = needed = sum(values.nbytes for values in made)
    if grows:  # what there is does not suffice for more
        sleep()
        wake()
        more, other = tensors(2)
        made, sums, lives = made + more, sums + other, 2 * lives
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + int(share * needed), resource.RLIM_INFINITY))
    try:
        sleep()
        return "went on" if wake()["bytes"] > 0 and is_whole(made, sums) else "is not whole"
    except MemoryError as error:
        said = str(error)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    if "the host has no" not in said or _native.serve_asleep(-1) is not None or not is_whole(made, sums):
        return f"is not as it was: {said}"
    return "refused" if sleep()["bytes"] >= lives * 0.9 and wake()["bytes"] > 0 and is_whole(made, sums) else "cannot go on"


def random_program():
    """10^5 operations on tensors whose values are known, with sleeps between them; how many sleeps."""
    host_memory.learn()
    live, sleeps = [], 0
    for number in range(100_000):
        draw = chance.random()
        if draw < 0.3 or len(live) < 5:
            size = chance.choice([1, 50, 5000, chance.randint(1, 200_000)])
            live.append([torch.full((size,), number), number])
        elif draw < 0.6:
            live.pop(chance.randrange(len(live)) if len(live) < 40 else 0)
        elif draw < 0.8:
            one = chance.choice(live)
            one[0], one[1] = one[0] + 1, one[1] + 1
        elif draw < 0.99:
            one = chance.choice(live)
            one[0].mul_(3).remainder_(1009)
            one[1] = one[1] * 3 % 1009
        elif sleep()["bytes"] > 0:
            live.pop(chance.randrange(len(live)))  # while it sleeps
            wake()
            sleeps += 1
            if not all(bool((values == value).all()) for values, value in live):
                return f"after {number} operations values are wrong"
    return sleeps


def main():
    torch.set_num_threads(1)
    wrong = []
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, str(random_program()).encode())
        os._exit(0)
    os.close(write)
    counts["sleeps"] = os.read(read, 1 << 16).decode()
    for number in range(100):
        share, grows, (read, write) = chance.uniform(0.2, 1.2), chance.random() < 0.5, os.pipe()
        if (child := os.fork()) == 0:
            if number % 2 == 0:
                serve_for_ever(write)
            os.write(write, limited(share, grows).encode())
            os._exit(0)
        os.close(write)
        if number % 2 == 0:
            said = os.read(read, 1)
            time.sleep(chance.uniform(0, 0.02))  # within a sleep or a wake
            os.kill(child, signal.SIGKILL)
            ended = os.waitpid(child, 0)[1]
            said = "killed" if ended == signal.SIGKILL and b"!" not in said + os.read(read, 1 << 16) else f"{ended} {said}"
        else:
            ended, said = os.waitpid(child, 0)[1], os.read(read, 1 << 16).decode()
        os.close(read)
        if said in counts and (ended == 0 or said == "killed"):
            counts[said] += 1
        else:
            wrong.append(f"{number}: {ended} {said}")
    print(json.dumps({"wrong": wrong, **counts}))


if __name__ == "__main__":
    sys.exit(main())
