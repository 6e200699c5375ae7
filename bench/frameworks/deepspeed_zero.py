"""DeepSpeed: ZeRO, stage 2 or 3, with its own optimizer of the configuration."""

import argparse

import deepspeed
import torch
import torch._dynamo  # noqa: F401  (with PyTorch 2.15 it cannot be imported any more inside zero.Init)
from tiny import STEPS, Tokens, language_model
from transformers.integrations import HfDeepSpeedConfig

parser = argparse.ArgumentParser()
parser.add_argument("--stage", type=int, default=2)
parser.add_argument("--local_rank", type=int, default=0)
options = parser.parse_args()
config = {
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 1.0,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}},
    "zero_optimization": {"stage": options.stage, "overlap_comm": True},
}
deepspeed.init_distributed()
# transformers has to know of stage 3 before it makes a model: it begins zero.Init itself then, and leaves what is not there alone.
known = HfDeepSpeedConfig(config) if options.stage == 3 else None
model = language_model()
engine, _, _, _ = deepspeed.initialize(model=model, config=config, model_parameters=model.parameters())
for number, batch in enumerate(torch.utils.data.DataLoader(Tokens(), batch_size=8)):
    batch = {name: tensor.to(engine.device) for name, tensor in batch.items()}
    engine.backward(engine(**batch).loss)
    engine.step()
    if number + 1 == 2 * STEPS:
        break
