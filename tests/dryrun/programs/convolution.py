"""What a 3x3 convolution and its two gradients take beyond their results, in MiB, and who said so."""
import ctypes
import json
import os
import sys

import torch

image = torch.empty(64, 64, 112, 112, device="cuda", requires_grad=True)
layer = torch.nn.Conv2d(64, 64, 3, padding=1, bias=False).cuda()


def measured(work):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    result = work()
    return result, (torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()) / 2**20


result, forward = measured(lambda: layer(image))
upward = torch.empty_like(result)
_, data = measured(lambda: torch.autograd.grad(result, image, upward, retain_graph=True))
_, weights = measured(lambda: torch.autograd.grad(result, layer.weight, upward, retain_graph=True))
text = ctypes.create_string_buffer(1 << 16)
ctypes.CDLL(None).stalloc_dryrun_summary(text, ctypes.c_size_t(len(text)))
print(json.dumps({"workspaces": [forward, data, weights], "cudnn": json.loads(text.value)["cudnn"]}))
# Not to the interpreter's end: autograd's thread may still free a gradient there, which waits for Python, and aborts.
sys.stdout.flush()
os._exit(0)
