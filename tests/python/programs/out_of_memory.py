"""Asks for more than there is, and lives on."""

import torch

torch.ones(1, device="cuda")
try:
    torch.empty(200 << 30, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    print(f"caught {type(error).__name__}: {error}")
torch.ones(1, device="cuda")
