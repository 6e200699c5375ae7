"""Two processes share tensors whose memory is mapped by pages: `sharing.py SENDER RECEIVER`, each `stalloc` or `plain` (PyTorch's
own expandable segments). Prints what is wrong, and what the sender saw.

Nothing but copies from and to the host: on the stand-in GPU each kernel of a process that nobody observes ends all knowledge.
"""

import ctypes
import json
import os
import sys

import torch
import torch.multiprocessing as multiprocessing

#: Elements of a tensor that takes more than two pages of 2 MiB.
MANY = 700_000


def memory_calls():
    """How often the stand-in GPU was asked for memory, for its mapping, or to take it back."""
    text = ctypes.create_string_buffer(1 << 16)
    ctypes.CDLL(None).stalloc_dryrun_summary(text, ctypes.c_size_t(len(text)))
    return json.loads(text.value)["memory_calls"]


def exported():
    """Descriptors of pages that are open here; the stand-in keeps one of its own for each page that was ever exported."""
    files = []
    for number in os.listdir("/proc/self/fd"):
        try:
            if "stalloc-dryrun-page" in os.readlink(f"/proc/self/fd/{number}"):
                files.append(os.stat(f"/proc/self/fd/{number}").st_ino)
        except OSError:
            pass  # the folder's own
    return len(files) - len(set(files))


def numbers(factor):
    return torch.arange(MANY) * factor


def holds(tensor, expected):
    return bool(torch.equal(tensor.cpu(), expected))


def receive(given, answers):
    wrong = []

    def check(what, is_so):
        if not is_so:
            wrong.append(f"receiver: {what}")

    head, tail, small = given.get(timeout=300)
    check("reads what was written there", holds(head, numbers(1)[:10]) and holds(tail, numbers(1)[-300_000:]))
    check("reads a small tensor", holds(small, torch.arange(10)))
    before = memory_calls()
    answers.put("read")
    (again,) = given.get(timeout=300)
    check("what it has already is not mapped again", memory_calls() == before)
    check("and is the same", again.data_ptr() + (MANY - 300_000) * 8 == tail.data_ptr())
    tail.copy_(numbers(2)[-300_000:])
    torch.cuda.synchronize()
    answers.put("written")
    given.get(timeout=300)
    check("reads what was written since", holds(again, numbers(3)))
    del head, tail, again
    answers.put("dropped")
    (other,) = given.get(timeout=300)
    check("reads what lies at the address now", holds(other, numbers(5)))
    check("keeps what it kept", holds(small, torch.arange(10)))
    small.copy_(torch.arange(10, 20))
    torch.cuda.synchronize()
    answers.put("done")
    del other, small
    given.get(timeout=300)
    answers.put(wrong)


def send(given, answers, found):
    wrong = []

    def check(what, is_so):
        if not is_so:
            wrong.append(f"sender: {what}")

    torch.cuda.init()
    before = len(os.listdir("/proc/self/fd"))
    small = torch.arange(10).cuda()
    free = torch.cuda.mem_get_info()[0]
    weights = numbers(1).cuda()
    noise = torch.arange(512).cuda()  # what lies on the same page is not theirs
    address = weights.data_ptr()
    given.put((weights[:10], weights[-300_000:], small))
    check("it is read", answers.get(timeout=300) == "read")
    most = exported()
    given.put((weights,))
    check("it is written", answers.get(timeout=300) == "written")
    check("what the other writes is read here", holds(weights, torch.cat([numbers(1)[:-300_000], numbers(2)[-300_000:]])))
    weights.copy_(numbers(3))
    torch.cuda.synchronize()
    check("what was shared twice takes no more descriptors", exported() == most)
    given.put(None)
    check("it is dropped", answers.get(timeout=300) == "dropped")
    del weights
    torch.cuda.ipc_collect()
    fewer = exported()
    other = numbers(5).cuda()
    check("the next tensor lies where the last one did", other.data_ptr() == address)
    given.put((other,))
    check("that is read, too", answers.get(timeout=300) == "done")
    check("what the other writes into the small one is read", holds(small, torch.arange(10, 20)))
    check("what was not shared is untouched", holds(noise, torch.arange(512)))
    given.put(None)
    wrong += answers.get(timeout=300)
    del other, small, noise
    torch.cuda.ipc_collect()
    closed = exported()
    torch.cuda.empty_cache()
    left = [torch.cuda.memory_reserved(), exported(), max(0, free - torch.cuda.mem_get_info()[0])]
    opened = len(os.listdir("/proc/self/fd")) - before
    found.put({"wrong": wrong, "exported": [most, fewer, closed], "left": left, "opened": opened})


def start(target, kind, *arguments):
    own = os.environ.copy()
    if kind == "plain":
        os.environ.pop("STALLOC_MODE")
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments)
    process.start()
    os.environ.clear()
    os.environ.update(own)
    return process


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    given, answers, found = context.Queue(), context.Queue(), context.Queue()
    sender = start(send, sys.argv[1], given, answers, found)
    receiver = start(receive, sys.argv[2], given, answers)
    print(json.dumps(found.get(timeout=300)))
    sender.join(60)
    receiver.join(60)
    sys.exit(sender.exitcode or receiver.exitcode)
