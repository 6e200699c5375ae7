"""Asks what other frameworks ask of values, and fails where the answer is not a real run's."""

import torch
from megatron.core.optimizer import clip_grads
from transformers import masking_utils
from transformers.generation import MaxLengthCriteria, StoppingCriteriaList, utils


def main() -> None:
    positions = torch.arange(8, device="cuda").unsqueeze(0)
    assert masking_utils.find_packed_sequence_indices(positions) is None
    criteria = StoppingCriteriaList([MaxLengthCriteria(3)])
    for length in (2, 3):
        text = torch.zeros(1, length, dtype=torch.long, device="cuda")
        assert utils.StopCheck()(~criteria(text, None), text[:, -1], length) == (length == 3), "generation ends"
    torch.distributed.init_process_group("nccl")
    norm = clip_grads.get_grad_norm_fp32([torch.ones(8, device="cuda")], grad_stats_parallel_group=None)
    assert norm > 1.0, "gradients are clipped"
