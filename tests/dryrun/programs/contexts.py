"""A library of its own context on one GPU, in a program that uses another."""
import ctypes
import json

import torch

torch.cuda.init()
driver = ctypes.CDLL("libcuda.so.1")
contexts = [ctypes.c_void_p() for _ in range(2)]
for device, context in enumerate(contexts):
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0


def push(device):
    assert driver.cuCtxPushCurrent_v2(contexts[device]) == 0


def pop():
    popped = ctypes.c_void_p()
    assert driver.cuCtxPopCurrent_v2(ctypes.byref(popped)) == 0
    return [context.value for context in contexts].index(popped.value)


def current():
    return torch.empty(1, device="cuda").device.index


seen = [current()]
push(1)
seen.append(current())
push(0)
push(1)
seen += [pop(), current(), pop(), current(), pop(), current()]
torch.cuda.set_device(1)
push(0)
seen += [current(), pop(), current()]
print(json.dumps(seen))
