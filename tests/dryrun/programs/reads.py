"""What comes back from a device, and what a recorder is told of it."""
import ctypes
import json
import traceback

import torch

library = ctypes.CDLL(None)
told = []


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int, ctypes.c_uint64, ctypes.c_int)
def on_read(_user, destination, size, source, device, stream, flags):
    line = traceback.extract_stack()[-2].line
    told.append({"line": line, "size": size, "device": device, "flags": flags})
    if "answer me" in line:
        ctypes.memmove(destination, (ctypes.c_float * 1)(2.5), 4)
        return 1
    return 0


library.stalloc_dryrun_on_host_read.argtypes = [type(on_read), ctypes.c_void_p]
library.stalloc_dryrun_on_host_read(on_read, None)
results = {}
results["copied"] = torch.tensor([1, 2, 3]).cuda().tolist()
results["filled"] = torch.zeros(2, device="cuda").tolist()
results["part"] = torch.arange(100, dtype=torch.int16).cuda()[40:43].tolist()
results["moved"] = torch.tensor([4.0, 5.0]).cuda().clone().tolist()
computed = torch.ones(4, device="cuda") + 1
results["computed"] = computed.sum().item()
results["answered"] = computed.sum().item()  # answer me
rows = torch.arange(12.0).reshape(3, 4).cuda()
results["nan"] = torch.isnan(computed).any().item()
results["printed"] = str(computed)
pinned = torch.full((64,), 7.0).pin_memory()
results["into_pinned"] = pinned.copy_(computed.repeat(16), non_blocking=True).sum().item()
library.stalloc_dryrun_on_host_read(on_read.__class__(), None)
computed.max().item()
text = ctypes.create_string_buffer(1 << 16)
library.stalloc_dryrun_summary.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
library.stalloc_dryrun_summary.restype = ctypes.c_size_t
length = library.stalloc_dryrun_summary(text, len(text))
short = ctypes.create_string_buffer(b"xxxx", 4)
library.stalloc_dryrun_summary(short, 3)
print(json.dumps({"results": results, "told": told, "summary": json.loads(text.value), "length": length == len(text.value), "short": short.raw.decode()}))
