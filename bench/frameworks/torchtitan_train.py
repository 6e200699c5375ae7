"""torchtitan: its own training program on its debug model, FSDP over the ranks, texts and words of our own."""

import random
import sys
from pathlib import Path

from tiny import STEPS, sentence, tokenizer

assets = Path("assets")
# Its arguments are read when it is imported.
sys.argv[1:] = [
    *("--model.name", "llama3", "--model.flavor", "debugmodel", "--model.hf_assets_path", str(assets)),
    *("--training.dataset", "words", "--training.steps", str(STEPS), "--training.seq_len", "512"),
    *("--training.local_batch_size", "8", "--activation_checkpoint.mode", "selective", "--metrics.log_freq", "1"),
]

from datasets import Dataset  # noqa: E402
from torchtitan.hf_datasets import DatasetConfig, text_datasets  # noqa: E402
from torchtitan.train import Trainer, main  # noqa: E402

chance = random.Random(4)
texts = Dataset.from_list([{"text": sentence(50, 500, chance)} for _ in range(2000)])
text_datasets.DATASETS["words"] = DatasetConfig(path="", loader=lambda _path: texts, sample_processor=lambda row: row["text"])
tokenizer().save_pretrained(assets)
main(Trainer)
