"""Peers of shared memory that are killed, in both directions: ``ipc_deaths.py TIMES``. Prints what is left open or held after each ten.

Peers are forked by a process that never uses CUDA: a fork costs less than an import of PyTorch.
"""

import json
import os
import pickle
import random
import signal
import socket
import sys

import torch
from torch.multiprocessing.reductions import reduce_tensor

times = int(sys.argv[1])
chance = random.Random(1)
ELEMENTS = 400_000


def send(channel, value):
    data = pickle.dumps(value)
    channel.sendall(len(data).to_bytes(4, "big") + data)


def receive(channel):
    """What was sent; None if the other end is gone."""
    data, missing = b"", 4
    while missing:
        got = channel.recv(missing)
        if not got:
            return None
        data += got
        missing -= len(got)
        if len(data) == 4 and not missing:
            missing = int.from_bytes(data, "big")
    return pickle.loads(data[4:])  # noqa: S301 - from our own child


def opened(shared):
    rebuild, arguments = shared
    return rebuild(*arguments)


def peer(channel):
    """Holds what it is sent, or sends what is its own; is killed by whoever started it."""
    role, shared = receive(channel)
    if role == "receiver":
        held = opened(shared)
        send(channel, int(held[7].item()))
    else:
        held = torch.arange(ELEMENTS).cuda()
        send(channel, reduce_tensor(held))
    signal.pause()


def factory(channel):
    """Forks a peer for each message, which is the number of a socket's end that it was sent."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, (descriptor, *_), _, _ = socket.recv_fds(channel, 1, 1)
        if not message:
            os._exit(0)
        child = os.fork()
        if child == 0:
            peer(socket.socket(fileno=descriptor))
            os._exit(0)
        os.close(descriptor)
        channel.sendall(child.to_bytes(4, "big"))


ours, theirs = socket.socketpair()
if os.fork() == 0:
    ours.close()
    try:
        factory(theirs)
    finally:
        os._exit(1)
theirs.close()


def start():
    """A new peer: its number and the way to it."""
    near, far = socket.socketpair()
    socket.send_fds(ours, [b"x"], [far.fileno()])
    far.close()
    near.settimeout(60)
    number = int.from_bytes(ours.recv(4), "big")
    alive.add(number)
    return number, near


def end(number):
    """Kill a peer, unless it is dead: its number may be another's since."""
    if number in alive:
        alive.remove(number)
        os.kill(number, signal.SIGKILL)


alive: set[int] = set()
torch.cuda.init()
tensor = torch.arange(ELEMENTS).cuda()
wrong, left = [], []
for time in range(times):
    number, channel = start()
    send(channel, ("receiver", reduce_tensor(tensor)))
    if chance.random() < 0.7 and receive(channel) != 7:
        wrong.append(f"receiver {time}")
    end(number)
    channel.close()

    number, channel = start()
    send(channel, ("sender", None))
    if chance.random() < 0.3:
        end(number)
    shared = receive(channel)
    if shared is not None:
        try:
            held = opened(shared)
            end(number)
            if int(held[7].item()) != 7 or held.cpu()[-1].item() != ELEMENTS - 1:
                wrong.append(f"sender {time}")
            del held
        except RuntimeError:
            pass  # it was killed before its memory was opened
    end(number)
    channel.close()
    torch.cuda.ipc_collect()
    if time % 10 == 9:
        left.append([len(os.listdir("/proc/self/fd")), torch.cuda.memory_reserved(), torch.cuda.mem_get_info()[0]])
if tensor[7].item() != 7:
    wrong.append("ours")
print(json.dumps({"wrong": wrong, "left": left}))
