"""Processes that die while they hold memory of another one: `sharing_deaths.py COUNT [SEED]`, so many in each direction.

One process, the holder, lives throughout. A borrower opens a tensor of the holder's and is killed; then a lender is killed of whom
the holder has a tensor. Half of them die at any moment, while the tensor is handed over, too. Processes are forked from one that
has imported PyTorch and never uses CUDA: starting one is cheap. Prints what is wrong and what the holder has left.
"""

import json
import os
import pickle
import random
import signal
import sys
import time
from multiprocessing import Pipe
from multiprocessing.reduction import ForkingPickler

import torch
from sharing import exported
from torch.multiprocessing.reductions import rebuild_cuda_tensor, reduce_tensor

PATIENCE = 300  # seconds, for what takes milliseconds
SIZES = (10, 100_000, 700_000)  # elements: a part of a page, of one or two, of three or more


def forked(target, *arguments):
    """Starts a process, which has one end of a pipe; its number, and the other end."""
    here, there = Pipe()
    process = os.fork()
    if process:
        there.close()
        return process, here
    here.close()
    try:
        target(there, *arguments)
    finally:
        os._exit(0)


def heard(pipe):
    if not pipe.poll(PATIENCE):
        raise TimeoutError("a process hangs")
    return pipe.recv_bytes()


def killed(process):
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def lent(number):
    """A tensor of its own values, and what another process opens it by."""
    tensor = torch.arange(SIZES[number % 3]).add(number).cuda()
    torch.cuda.synchronize()
    return tensor, reduce_tensor(tensor)[1]


def is_right(tensor, number):
    return torch.equal(tensor.cpu(), torch.arange(SIZES[number % 3]).add(number))


def borrow(pipe):
    number, arguments = pickle.loads(heard(pipe))
    tensor = rebuild_cuda_tensor(*arguments)
    pipe.send_bytes(b"held" if is_right(tensor, number) else b"wrong values")
    time.sleep(PATIENCE)


def lend(pipe, number):
    tensor, arguments = lent(number)
    pipe.send_bytes(ForkingPickler.dumps((number, arguments)))
    time.sleep(PATIENCE)
    del tensor


def left(free, descriptors):
    torch.cuda.ipc_collect()
    torch.cuda.empty_cache()
    return {
        "allocated": torch.cuda.memory_allocated(),
        "taken": max(0, free - torch.cuda.mem_get_info()[0]),
        "exported": exported(),
        "opened": len(os.listdir("/proc/self/fd")) - descriptors,
    }


def hold(pipe):
    """Answers the process that starts and kills the others, until that has no more to ask."""
    torch.zeros(1).cuda()
    tensor, arguments = lent(0)  # what PyTorch opens once for all that it shares
    torch.UntypedStorage._release_ipc_counter_cuda(arguments[11], arguments[12])
    del tensor
    torch.cuda.ipc_collect()
    torch.cuda.empty_cache()
    before = torch.cuda.mem_get_info()[0], len(os.listdir("/proc/self/fd"))
    held = {}
    while True:
        what, number, arguments = pickle.loads(pipe.recv_bytes())
        if what == "lend":
            tensor, arguments = lent(number)
            held[number] = tensor, arguments
            pipe.send_bytes(ForkingPickler.dumps((number, arguments)))
        elif what == "take back":
            tensor, arguments = held.pop(number)
            said = b"" if is_right(tensor, number) else b"wrong values"
            # Nobody else does it for one who is dead, as nobody does without stalloc.
            if arguments is not None:
                torch.UntypedStorage._release_ipc_counter_cuda(arguments[11], arguments[12])
            del tensor
            torch.cuda.ipc_collect()
            pipe.send_bytes(said)
        elif what == "open":
            try:
                held[number] = rebuild_cuda_tensor(*arguments), None
                pipe.send_bytes(b"held")
            except RuntimeError:
                pipe.send_bytes(b"refused")
        else:
            pipe.send_bytes(json.dumps(left(*before)).encode())


def main(count, seed):
    chance, found = random.Random(seed), {"wrong": [], "held": 0, "refused": 0}
    _, holder = forked(hold)

    def ask(what, number=0, arguments=None):
        holder.send_bytes(pickle.dumps((what, number, arguments)))
        return heard(holder)

    def check(said, number):
        if said:
            found["wrong"].append(f"{number}: {said.decode()}")

    for number in range(count):
        borrower, pipe = forked(borrow)
        pipe.send_bytes(ask("lend", number))
        if number % 2:
            time.sleep(chance.uniform(0, 0.2))
        else:
            said = heard(pipe)
            found["held"] += said == b"held"
            check(said.removeprefix(b"held"), number)
        killed(borrower)
        pipe.close()
        check(ask("take back", number), number)
    found["after borrowers"] = json.loads(ask("left"))
    for number in range(count):
        lender, pipe = forked(lend, number)
        _, arguments = pickle.loads(heard(pipe))
        if number % 2:
            holder.send_bytes(pickle.dumps(("open", number, arguments)))
            time.sleep(chance.uniform(0, 0.004))
            killed(lender)
            said = heard(holder)
        else:
            said = ask("open", number, arguments)
            killed(lender)
        pipe.close()
        found[said.decode()] += 1
        if said == b"held":
            check(ask("take back", number), number)
    found["after lenders"] = json.loads(ask("left"))
    holder.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1)
