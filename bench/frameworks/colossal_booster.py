"""Colossal-AI: its Booster with a plugin. ZeRO stage 2, Gemini (ZeRO stage 3 in chunks), or tensor and data parallel together.

Gemini takes no optimizer but Colossal-AI's own, whose kernels are compiled with nvcc. A dry run without nvcc gets kernels that do
nothing: the real ones make no tensors, and values are not computed.
"""

import argparse
import os
from types import SimpleNamespace

import colossalai
import torch
from colossalai.booster import Booster
from colossalai.booster.plugin import GeminiPlugin, HybridParallelPlugin, LowLevelZeroPlugin
from colossalai.kernel.kernel_loader import CPUAdamLoader, FusedOptimizerLoader
from colossalai.nn.optimizer import HybridAdam
from tiny import STEPS, Tokens, language_model
from torch.utils.cpp_extension import CUDA_HOME

PLUGINS = {
    "zero-2": lambda: LowLevelZeroPlugin(stage=2, precision="bf16"),
    "gemini": lambda: GeminiPlugin(precision="bf16"),
    "tensor-parallel": lambda: HybridParallelPlugin(tp_size=2, pp_size=1, zero_stage=1, precision="bf16"),
}


class NoKernel:
    """In the place of an extension of Colossal-AI's that cannot be compiled."""

    def is_available(self) -> bool:
        return True

    def assert_compatible(self) -> None:
        pass

    def load(self) -> SimpleNamespace:
        return SimpleNamespace(CPUAdamOptimizer=lambda *_: None, multi_tensor_adam=lambda *_: None)


parser = argparse.ArgumentParser()
parser.add_argument("--plugin", choices=PLUGINS, default="zero-2")
options = parser.parse_args()
if CUDA_HOME is None and "STALLOC_DRYRUN_GPU" in os.environ:
    CPUAdamLoader.REGISTRY = FusedOptimizerLoader.REGISTRY = [NoKernel]
colossalai.launch_from_torch()
plugin = PLUGINS[options.plugin]()
booster = Booster(plugin=plugin)
model = language_model()
make_optimizer = HybridAdam if options.plugin == "gemini" else torch.optim.AdamW
optimizer = make_optimizer(model.parameters(), lr=1e-4)
batches = plugin.prepare_dataloader(Tokens(), batch_size=8, shuffle=True, drop_last=True)
model, optimizer, _, batches, _ = booster.boost(model, optimizer, dataloader=batches)
model.train()
for number, batch in enumerate(batches):
    batch = {name: tensor.cuda() for name, tensor in batch.items()}
    loss = model(**batch).loss
    booster.backward(loss, optimizer)
    optimizer.step()
    optimizer.zero_grad()
    if number + 1 == STEPS:
        break
