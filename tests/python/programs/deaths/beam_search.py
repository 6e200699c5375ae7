"""Translation with beams: each token's keys and values are appended to those before, and all are put into the order of the beams."""
import torch
from torch import nn
LAYERS, BEAMS, WIDTH = 6, 32, 512
layers = nn.ModuleList(nn.Linear(WIDTH, 2 * WIDTH) for _ in range(LAYERS)).cuda().eval()
with torch.no_grad():
    past = [(torch.zeros(BEAMS, 0, WIDTH, device="cuda"),) * 2 for _ in range(LAYERS)]
    for token in range(4000):
        x = torch.randn(BEAMS, 1, WIDTH, device="cuda")
        order = torch.randint(0, BEAMS, (BEAMS,), device="cuda")
        now = []
        for layer, (keys, values) in zip(layers, past):
            key, value = layer(x).chunk(2, -1)
            keys, values = torch.cat([keys, key], 1), torch.cat([values, value], 1)  # named
            x = (x @ keys.transpose(1, 2)).softmax(-1) @ values
            now.append((keys, values))
        past = [(keys.index_select(0, order), values.index_select(0, order)) for keys, values in now]
