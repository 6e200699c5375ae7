"""A volume is segmented by windows; results and counts of all classes are collected on the GPU."""
import torch
from torch import nn

def slide(net, volume, classes=14, size=64):
    result = torch.zeros(classes, *volume.shape, device="cuda")  # named
    count = torch.zeros_like(result)
    for z in range(0, volume.shape[0] - size + 1, 32):
        for y in range(0, volume.shape[1] - size + 1, 32):
            window = volume[z : z + size, y : y + size, :size]
            result[:, z : z + size, y : y + size, :size] += net(window[None, None])[0]
            count[:, z : z + size, y : y + size, :size] += 1
    return (result / count.clamp(min=1)).softmax(0)

net = nn.Conv3d(1, 14, 3, 1, 1).cuda().eval()
with torch.inference_mode():
    slide(net, torch.randn(192, 192, 128, device="cuda"))
