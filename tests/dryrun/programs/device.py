"""What PyTorch says of the devices, and what happens at their capacity."""
import json

import torch

properties = torch.cuda.get_device_properties(0)
free, total = torch.cuda.mem_get_info()
granules = []
try:
    while True:
        granules.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))
except torch.cuda.OutOfMemoryError as error:
    message = str(error)
held = len(granules)
del granules
torch.cuda.empty_cache()
after = torch.cuda.mem_get_info()[0]
whole = torch.empty(free // (2 << 20) * (2 << 20), dtype=torch.uint8, device="cuda")
full = torch.cuda.mem_get_info()[0]
del whole
torch.cuda.empty_cache()
print(json.dumps({
    "count": torch.cuda.device_count(),
    "name": properties.name,
    "capability": [properties.major, properties.minor],
    "multiprocessors": properties.multi_processor_count,
    "total": properties.total_memory,
    "total_by_info": total,
    "free": free,
    "held": held,
    "message": message,
    "after": after,
    "full": full,
    "names": [torch.cuda.get_device_name(device) for device in range(torch.cuda.device_count())],
    "other": str(torch.ones(3, device=f"cuda:{torch.cuda.device_count() - 1}").to("cuda:0").device),
    "nvml": torch.cuda._raw_device_count_nvml(),
}))  # fmt: skip
