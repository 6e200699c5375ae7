"""Each lever on each shape of script, on the CPU with real numbers: bitwise the script's, within rounding, or refused with the reason.

All cells take minutes: `scripts/test-python tests/python/test_lever_harness.py` runs those below; with STALLOC_LEVERS_ALL=1, all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from runs import PROGRAMS

import stalloc

SHAPES = Path(__file__).parent / "lever_shapes"
#: What becomes of a lever on a shape; the first words of a reason.
CELLS: dict[str, dict[str, str]] = {
    "accumulate_mean": {"states_on_host": "bitwise", "spill": "bitwise", "step_in_backward": "refused: the script calls backward several times", "zero_grad_early": "bitwise"},
    "accumulate_model_zero": {"accumulate": "refused: the script frees gradients without the optimizer"},
    "accumulate_none": {"accumulate": "refused: the script frees gradients without the optimizer", "zero_grad_early": "bitwise"},
    "asked_gradients": {"fused": "rounding", "foreach_off": "bitwise", "states_on_host": "bitwise", "step_in_backward": "refused: the script clips"},
    "attention": {"checkpoint": "bitwise", "checkpoint+spill": "bitwise", "checkpoint_keep_matmuls+spill": "bitwise"},
    "batchnorm": {"spill": "bitwise", "checkpoint": "bitwise", "checkpoint_keep_matmuls": "bitwise"},
    "block_checkpoint": {"checkpoint": "refused: the script checkpoints already"},
    "cells": {"checkpoint_keep_matmuls": "refused: a block has a cell", "checkpoint": "bitwise"},
    "channels_last": {"states_on_host": "bitwise", "offload": "bitwise", "spill": "bitwise"},
    "clipped": {"no_unused_gradients": "refused: the script clips", "step_in_backward": "refused: the script clips"},
    "closure": {"states_on_host": "refused: the script hands step() a closure", "step_in_backward": "refused: the script hands step() a closure"},
    "collected": {"checkpoint": "refused: a block changes the variable PENALTIES"},
    "compiled_part": {"spill": "bitwise", "checkpoint": "bitwise", "offload_first_half": "bitwise"},
    "counts_calls": {"checkpoint": "refused: a block changes Counting.calls"},
    "ddp_after": {"weights_bf16": "refused: the script has process groups", "spill": "bitwise", "step_in_backward": "refused: the script has process groups", "checkpoint": "bitwise", "offload": "bitwise"},
    "ddp_before": {"weights_bf16": "refused: the script has process groups", "checkpoint_every_second": "bitwise", "chunked_loss": "rounding"},
    "dicts": {"checkpoint": "bitwise", "checkpoint_every_second": "bitwise", "chunked_loss": "rounding"},
    "ema": {"spill": "bitwise", "checkpoint": "bitwise", "offload_first_half": "bitwise", "autocast_bf16": "change", "chunked_loss": "rounding"},
    "evaluation": {"chunked_loss": "rounding", "offload": "bitwise"},
    "function": {"zero_grad_early": "bitwise", "step_in_backward": "bitwise", "fused": "rounding"},
    "gan": {"checkpoint+spill": "bitwise", "checkpoint_every_second+spill+states_on_host": "bitwise", "zero_grad_early+states_on_host": "bitwise", "spill": "bitwise", "step_in_backward": "refused: the script has several optimizers", "accumulate": "refused: the script has several"},
    "gru": {"spill": "bitwise", "spill+states_on_host": "bitwise", "checkpoint": "refused: no repeated blocks"},
    "handed": {"checkpoint": "refused: a block changes what it is handed", "spill": "bitwise", "offload_first_half": "bitwise"},
    "handed_list": {"checkpoint": "bitwise", "checkpoint_every_second": "bitwise", "checkpoint_keep_matmuls": "bitwise", "checkpoint+spill": "bitwise"},
    "hooks": {"checkpoint": "refused: a hook of widen"},
    "inline": {"foreach_off": "bitwise", "fused": "rounding"},
    "kept_gradients": {"zero_grad_early": "refused: the script does not free", "step_in_backward": "refused: the script does not free"},
    "late_rate": {"step_in_backward": "refused: the script sets options", "checkpoint": "bitwise", "zero_grad_early": "bitwise"},
    "lazy": {"fused": "rounding", "states_on_host": "bitwise", "checkpoint": "bitwise", "chunked_loss": "rounding"},
    "mixed_list": {
        **dict.fromkeys(("checkpoint", "checkpoint_every_second", "offload_first_half", "spill", "states_on_host"), "bitwise"),
        "checkpoint+spill": "bitwise",
    },
    "moe": {"spill": "bitwise", "checkpoint": "bitwise"},
    "no_module": {"foreach_off": "bitwise", "step_in_backward": "bitwise", "states_on_host": "bitwise", "spill": "refused: no module"},
    "onecycle": {"step_in_backward": "bitwise"},
    "own_checkpoint": {"spill": "bitwise", "checkpoint": "bitwise"},
    "own_clip": {"step_in_backward": "refused: the script clips", "offload": "bitwise", "spill": "bitwise"},
    "own_every_second": {
        "offload_first_half": "bitwise", "offload": "bitwise", "spill": "bitwise", "without_own": "bitwise",
        "checkpoint": "refused: the script checkpoints already", "chunked_loss": "rounding",
    },
    "own_function": {"chunked_loss": "rounding", "checkpoint": "bitwise", "spill": "bitwise"},
    "pairs": {"checkpoint_keep_matmuls+spill": "bitwise", "checkpoint": "bitwise", "chunked_loss": "rounding", "no_unused_gradients": "bitwise"},
    "parts_first": {"checkpoint": "bitwise", "states_on_host": "bitwise", "step_in_backward": "bitwise"},
    "plain_list": {
        **dict.fromkeys(("checkpoint", "checkpoint_every_second", "offload_first_half", "spill", "states_on_host"), "bitwise"),
        "checkpoint+spill": "bitwise",
    },
    "prepared": {"checkpoint": "bitwise", "foreach_off": "bitwise", "states_on_host": "bitwise", "accumulate": "refused: the script's schedule"},
    "python_random": {"checkpoint": "refused: a block changes Python's random"},
    "reloaded": {"no_unused_gradients": "bitwise", "states_on_host": "bitwise", "step_in_backward": "bitwise", "fused": "rounding"},
    "restarts": {"checkpoint": "bitwise"},
    "resume": {"step_in_backward": "refused: the script has several", "fused": "rounding", "foreach_off": "bitwise"},
    "scaler": {"states_on_host": "bitwise", "fused+states_on_host": "rounding", "step_in_backward": "refused: the script scales", "fused": "rounding"},
    "set_globals": {"foreach_off": "bitwise", "step_in_backward": "bitwise", "checkpoint": "bitwise", "no_unused_gradients": "refused: every"},
    "spectral": {"zero_grad_early": "bitwise", "states_on_host": "bitwise", "checkpoint": "bitwise", "spill": "bitwise"},
    "tried_first": {"fused": "rounding", "step_in_backward": "bitwise", "zero_grad_early": "bitwise"},
    "two_losses": {"spill": "bitwise", "checkpoint_keep_matmuls": "refused: the script goes through a graph twice", "checkpoint": "bitwise", "no_unused_gradients": "refused: the script makes another optimizer"},
    "zeros": {"zero_grad_early": "refused: the script sets gradients to zero", "step_in_backward": "refused: the script sets"},
}


def test_no_lever_trains_something_else():
    has_all = bool(os.environ.get("STALLOC_LEVERS_ALL"))
    assert {path.stem for path in SHAPES.glob("*.py")} == {*CELLS, "nets"}
    chosen = [] if has_all else [f"{shape}:{','.join(levers)}" for shape, levers in CELLS.items()]
    folder = str(Path(stalloc.__file__).parents[1])
    process = subprocess.run(
        [sys.executable, PROGRAMS / "lever_harness.py", SHAPES, *chosen], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": folder}
    )
    assert process.returncode == 0, process.stderr
    found = json.loads(process.stdout)
    wrong = {(shape, lever): cell for shape, cells in found.items() for lever, cell in cells.items() if "WRONG" in cell}
    assert not wrong
    for shape, levers in CELLS.items():
        for lever, cell in levers.items():
            assert found[shape][lever].startswith(cell), (shape, lever)


@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
def test_what_is_applied_is_taken_off_again(kind):
    import copy
    import pickle

    import torch
    from torch import nn

    model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2)))
    optimizer = getattr(torch.optim, kind)([*model.parameters()][:3], lr=0.1)
    before = (str(model.__dict__.keys()), str(optimizer.state_dict()))
    own = pickle.dumps(copy.deepcopy(model).state_dict()["0.0.weight"])
    stalloc.apply.checkpoint(*model)
    stalloc.apply.offload(model)
    stalloc.apply.fused(optimizer)
    stalloc.apply.zero_grad_early(optimizer)
    stalloc.apply.no_unused_gradients(model, optimizer)
    model(torch.ones(2, 4)).sum().backward()
    assert [p.grad is None for p in model.parameters()] == [False, False, False, True]
    optimizer.step()
    assert all(p.grad is None for p in model.parameters())
    saved = optimizer.state_dict()
    assert saved["param_groups"][0]["fused"] is None and optimizer.param_groups[0]["fused"]
    assert b"stalloc" not in pickle.dumps(model) and pickle.dumps(model.state_dict()["0.0.weight"]) != own
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for p in twin.parameters():
            p.zero_()
        assert not twin(torch.ones(2, 4)).any()
    for target in (model, optimizer):
        stalloc.apply.take_off(target)
    assert all(type(module.forward).__name__ == "method" for module in model.modules()) and all(p.requires_grad for p in model.parameters())
    assert str(model.__dict__.keys()) == before[0] and optimizer.param_groups[0]["fused"] is None
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize(("kind", "options"), [("AdamW", {"amsgrad": True}), ("SGD", {"momentum": 0.9}), ("Adagrad", {}), ("NAdam", {"foreach": False})])
def test_states_wait_on_the_host_and_numbers_stay(kind, options, monkeypatch):
    import copy

    import torch
    from torch import nn

    from stalloc._levers import host_states

    monkeypatch.setattr(host_states, "LEAST", 17)  # the biases' states stay
    monkeypatch.setattr(host_states, "LEAST_PIECE", 1)
    found = {}
    for way in ("as it is", "on the host", "taken off"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 4), nn.Conv1d(1, 1, 3, padding=1), nn.Linear(4, 2)).to(memory_format=torch.preserve_format)
        groups = [{"params": model[:2].parameters(), "lr": 0.02}, {"params": model[2].parameters()}]
        optimizer = getattr(torch.optim, kind)(groups, lr=0.01, **options)
        seen = []
        if way != "as it is":
            stalloc.apply.states_on_host(optimizer)
            stalloc.apply.states_on_host(optimizer)
        optimizer.register_step_post_hook(lambda optimizer, *_: seen.append([len(group["params"]) for group in optimizer.param_groups]))
        pointers = []
        for step in range(6):
            model(torch.randn(5, 1, 6)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            states = [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value) and value.nbytes > 16]
            pointers.append({value.data_ptr() for value in states})
            if step == 2:
                saved = copy.deepcopy(optimizer.state_dict())
            if step == 3:
                optimizer.load_state_dict(copy.deepcopy(saved))
            if step == 4 and way == "taken off":
                stalloc.apply.take_off(optimizer)
        assert pointers[1] == pointers[2] and pointers[1], "between steps each state is where it was"
        assert seen == [[4, 2]] * 6
        found[way] = str([[p.tolist() for p in model.parameters()], optimizer.state_dict(), saved])
    assert found["as it is"] == found["on the host"] == found["taken off"]
