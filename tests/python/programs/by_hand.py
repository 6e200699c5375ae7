"""Gives PyTorch the library by its path alone, and keeps a log of its own of every address; prints what overlaps.

Nothing of the package is imported: the environment says what to serve.
"""

import ctypes
import json
import sys
import threading

import torch
from gpt_step import Trainer

library = ctypes.CDLL(sys.argv[1])
library.my_malloc.restype = ctypes.c_void_p
library.my_malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
library.my_free.restype = None
library.my_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
lock, live, overlaps, requests = threading.Lock(), {}, 0, 0


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
def malloc(size, device, stream):
    global overlaps, requests
    with lock:
        address = library.my_malloc(size, device, stream)
        requests += 1
        if size > 0:
            overlaps += any(address < other + length and other < address + size for other, length in live.items())
            live[address] = size
    return address


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
def free(address, size, device, stream):
    global overlaps
    with lock:
        overlaps += live.pop(address, None) != size
        library.my_free(address, size, device, stream)


if len(sys.argv) > 2:  # as users of the artifact write it
    by_name = torch.cuda.memory.CUDAPluggableAllocator(sys.argv[1], "stalloc_malloc", "stalloc_free")
    torch.cuda.memory.change_current_allocator(by_name)
    try:
        torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        print(str(error).split(".")[0])
    for size in range(1, 6000):  # nothing that was planned
        torch.empty(size * 777 % 100000, device="cuda")
    sys.exit()

address = lambda function: ctypes.cast(function, ctypes.c_void_p).value
logged = torch._C._cuda_customAllocator(address(malloc), address(free))
torch.cuda.memory.change_current_allocator(torch.cuda.memory._CUDAAllocator(logged))
trainer = Trainer()
kept = []
for step in range(6):
    if step == 3:
        kept.append(torch.empty(12345, device="cuda"))
        trainer.step(rows=5)
    trainer.step()
print(json.dumps({"requests": requests, "overlaps": overlaps}), flush=True)
# Not by the interpreter's end: autograd's thread may free a tensor then, and `free` above needs the interpreter.
ctypes.CDLL(None).exit(0)
