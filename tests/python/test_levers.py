"""`stalloc levers`: each lever's figures are those of the script with its lines written in, and its numbers those without it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from runs import COMMAND, PROGRAMS, own_cache, run
from typed import conforms

from stalloc.results import LeversAnswer

GPU = "sm=8,memory=1GiB,capability=8.0,context=16MiB,name=small"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return own_cache(tmp_path_factory.mktemp("cache"))


def levers(*arguments: str, cache: dict[str, str], ok: tuple[int, ...] = (0,)) -> dict[str, Any]:
    process = run("levers", "--dry-run", GPU, "--json", *arguments, env=cache)
    assert process.returncode in ok, process.stderr
    answer: dict[str, Any] = json.loads(process.stdout)
    conforms(answer, LeversAnswer)
    return answer | {"stderr": process.stderr}


def peak_by_hand(folder: Path, edits: list[dict[str, str]], text: str = (PROGRAMS / "levers.py").read_text()) -> int:
    """The peak of the script with the lines of levers written in, where they say."""
    script = folder / "by_hand.py"
    lines = text.splitlines()
    for edit in sorted(edits, key=lambda edit: -int(edit["where"].rpartition(":")[2])):
        line = int(edit["where"].rpartition(":")[2])
        start = line if edit["where"].startswith("after ") else line - 1
        line -= edit["where"].startswith("before ")
        indent = re.match(" *", lines[start])[0]
        lines[start:line] = textwrap.indent(edit["how"], indent).splitlines()
    script.write_text("\n".join(lines))
    process = run("trace", "--dry-run", GPU, "--steps", "3", "--json", "-o", folder / "traces", "--", sys.executable, script)
    assert process.returncode == 0, process.stderr
    (device,) = json.loads(run("info", folder / "traces", "--json").stdout)["devices"]
    peak: int = device["peak_allocated"]
    return peak


def test_levers_are_measured_as_written_by_hand_and_the_cheapest_set_that_fits_is_found(cache, tmp_path):
    script = (sys.executable, str(PROGRAMS / "levers.py"))
    only = ("--only", "foreach_off,checkpoint,checkpoint_keep_matmuls,autocast_bf16")
    answer = levers(*only, "--goal", "225MiB", "-o", str(tmp_path / "peaks.html"), "--", *script, cache=cache)
    found = {lever["name"]: lever for lever in answer["levers"]}
    base = answer["base"]
    assert set(found) == {"foreach_off", "checkpoint", "checkpoint_keep_matmuls", "autocast_bf16"}
    # The first product of each of eight blocks: what the last one gave nobody saved.
    assert found["checkpoint"]["extra_flops"] == 8 * 2 * 4 * 256 * 256 * 2048
    assert found["checkpoint_keep_matmuls"]["extra_flops"] == 0
    assert found["checkpoint"]["step_ms"] > found["checkpoint_keep_matmuls"]["step_ms"] > base["step_ms"] > 0
    assert found["checkpoint"]["peak_allocated"] < found["checkpoint_keep_matmuls"]["peak_allocated"] < base["peak_allocated"]
    # It replaces the outermost model's `forward`, in time for the first step.
    assert found["autocast_bf16"]["peak_allocated"] == peak_by_hand(tmp_path, [found["autocast_bf16"]])
    assert not any(lever["fits"] for lever in answer["levers"])
    combination = answer["combination"]
    assert combination["fits"]
    # Two embeddings and eight blocks of two linear layers and a norm, each tensor in units of 512 bytes.
    weights = 4 * (2 * 4000 * 256 + 8 * (2 * 256 * 2048 + 2048 + 3 * 256))
    logits = 4 * 4 * 256 * 4000
    for one in (base, *answer["levers"], combination):
        held = one["holders"]
        assert sum(held.values()) == one["peak_allocated"] and held["parameters"] == weights
        assert 0 <= held["optimizer states"] - 2 * weights < 64 << 10, "and the steps' counters"
    assert 2 * logits <= base["holders"]["temporaries"] < 2 * logits + 4096 and base["holders"]["activations"] > 8 * 2 * 4 * 4 * 256 * 2048
    # At the step: what its groups of parameters need for a while, and the logits, which have a name.
    assert found["checkpoint"]["holders"]["gradients"] == weights and logits <= found["checkpoint"]["holders"]["activations"] < logits + (64 << 10)
    page = (tmp_path / "peaks.html").read_text()
    names = [name for name in re.findall(r'<tr><th scope="row">(.*?)</th>', page)]
    assert names[:2] == ["as it is", "foreach_off + checkpoint"] and set(names[2:]) == set(found)
    bars = re.findall(r'<rect class="s\d" x="[\d.]+" y="4" width="([\d.]+)" height="19"><title>(.*?)</title>', page)
    assert [name for _width, name in bars] == ["parameters", "optimizer states", "gradients", "activations", "temporaries"]
    assert float(bars[1][0]) == pytest.approx(2 * float(bars[0][0]), abs=0.3) and "to fit into" in page
    assert combination["levers"] == ["foreach_off", "checkpoint"]
    assert "optimizer = torch.optim.AdamW(model.parameters(), foreach=False)" == combination["how"][0]["how"]
    assert combination["peak_allocated"] == peak_by_hand(tmp_path, combination["how"])


def test_the_nearest_set_holds_no_lever_that_saves_nothing(cache, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(INLINE)
    goal = ("--goal", "20MiB", "--", sys.executable, str(script))
    answer = levers("--only", "foreach_off,offload", *goal, cache=cache, ok=(1,))
    assert {lever["name"] for lever in answer["levers"]} == {"foreach_off", "offload"}
    assert answer["combination"]["levers"] == ["offload"] and not answer["combination"]["fits"]
    assert answer["combination"]["peak_allocated"] == next(one["peak_allocated"] for one in answer["levers"] if one["name"] == "offload")
    assert levers("--only", "foreach_off", *goal, cache=cache, ok=(1,))["combination"] is None


#: Large states that one kernel updates faster, and activations that are much smaller.
STATES = """
import torch
from torch import nn

words, blocks = nn.Embedding(40000, 256), (nn.Sequential(nn.Linear(256, 256), nn.GELU(), nn.Tanh()) for _ in range(6))
model = nn.Sequential(words, *blocks).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(4):
    model(torch.ones(8192, dtype=torch.long, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_what_makes_a_step_faster_belongs_to_the_cheapest_set(cache, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(STATES)
    only = ("--only", "fused,foreach_off,checkpoint_every_second", "--goal", "240MiB")
    command = ("levers", "--dry-run", GPU.replace("sm=8", "sm=40"), "--json", *only, "--", sys.executable, str(script))
    answer = json.loads(run(*command, env=cache).stdout)
    alone = {lever["name"]: lever for lever in answer["levers"]}
    assert alone["checkpoint_every_second"]["fits"] and alone["fused"]["peak_allocated"] > answer["base"]["peak_allocated"], "by its counters"
    assert answer["combination"]["levers"] == ["fused", "checkpoint_every_second"]
    assert answer["combination"]["step_ms"] < 0.97 * alone["checkpoint_every_second"]["step_ms"]


def test_fit_with_levers_answers_as_levers_does(cache):
    options = ("--dry-run", GPU, "--only", "foreach_off,checkpoint", "--goal", "225MiB")
    command = ("--", sys.executable, str(PROGRAMS / "levers.py"))
    same, asked = run("levers", *options, *command, env=cache), run("fit", "--levers", *options, *command, env=cache)
    assert asked.stdout.startswith("The cheapest set that fits: foreach_off + checkpoint"), asked.stdout + asked.stderr
    assert "It does not fit as it is: " in asked.stderr and "Levers to try: 2." in asked.stderr, asked.stderr
    assert (asked.stdout, asked.returncode) == (same.stdout, 0)
    one = "--levers takes one GPU, at most one --vary, and a number as --world-size"
    for more, said in [
        (("--dry-run", "h100-80gb"), one),
        (("--vary", "A=1..2", "--vary", "B=1..2"), one),
        (("--world-size", "{A}"), one),
        (("--devices", "2"), "cannot be used with"),
        (("--steps", "1"), "--steps: levers are tried with 2 or more"),
    ]:
        process = run("fit", "--levers", *options, *more, *command, env=cache)
        assert process.returncode == 2 and process.stdout == "" and said in process.stderr, process.stderr


def test_what_a_script_does_already_is_a_line_and_no_trial(cache):
    only = ("--only", "checkpoint,step_in_backward")
    answer = levers(*only, "--", sys.executable, str(PROGRAMS / "levers.py"), "--bad", cache=cache)
    why = {lever["name"]: lever["why"] for lever in answer["skipped"]}
    assert why["checkpoint"] == "the script checkpoints already" and "clips gradients" in why["step_in_backward"]
    assert answer["levers"] == [] and answer["combination"]["levers"] == [], "it fits as it is"


#: One that checkpoints or offloads by itself, of which its peak has nothing: all in one piece, or a part that is not there at the peak.
OWN = """
import sys
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

net = nn.Sequential(*(nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(6))).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _step in range(3):
    x = torch.ones(8192, 256, device="cuda")
    if sys.argv[1] == "checkpoint":
        y = checkpoint(net, x, use_reentrant=False)
    else:
        with torch.autograd.graph.save_on_cpu():
            y = net(x[:64]).repeat(128, 1)
        y = net(y)
    y.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize("own, said", [("checkpoint", "checkpoint saves"), ("offload", "offload (hooks of saved tensors) saves")])
def test_what_a_script_does_itself_and_does_not_touch_the_peak_is_named(cache, tmp_path, own, said):
    file = tmp_path / "own.py"
    file.write_text(OWN)
    process = run("levers", "--dry-run", GPU, "--only", "checkpoint,without_own", "--", sys.executable, str(file), own, env=cache)
    assert process.returncode == 0, process.stderr
    assert re.search(rf"\nthe script's own {re.escape(said)} [\d.]+ \w+ of the [\d.]+ MiB that checkpoint saves\n", process.stdout), process.stdout
    process = run("run", "--fit=250MiB", "--only", "checkpoint", "--only-say", "--dry-run", GPU, "--", sys.executable, str(file), own, env=cache)
    assert f"--fit: the script's own {said}" in process.stderr and "applied from outside: checkpoint (" in process.stderr, process.stderr


SHARING = """
import os, runpy, sys, threading
from torch.optim.optimizer import register_optimizer_step_pre_hook

process, program, starts, lonely = os.getpid(), *sys.argv[1:]
open(os.environ["STALLOC_LAUNCH"]).close()
with open(starts, "a") as file:
    file.write(".")
if lonely == "yes":  # a process with threads is not copied
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def fail(*_):
    if os.getpid() != process and os.environ["STALLOC_LEVERS"] == "offload":
        sys.exit(3)


register_optimizer_step_pre_hook(fail)
sys.argv = [program]
runpy.run_path(program)
"""


def test_trials_share_the_start_of_the_script_and_one_whose_copy_fails_runs_it_all(cache, tmp_path):
    script, starts = tmp_path / "script.py", tmp_path / "starts"
    script.write_text(SHARING)

    def found(lonely: str) -> dict[str, tuple[int, int]]:
        starts.write_text("")
        only = ("--only", "checkpoint,weights_bf16,step_in_backward,offload")
        answer = levers(*only, "--", sys.executable, str(script), str(PROGRAMS / "levers.py"), str(starts), lonely, cache=cache)
        return {one["name"]: (one["peak_allocated"], one["extra_flops"]) for one in answer["levers"]}

    shared = found("no")
    assert starts.read_text() == "..", "three went on from where the first came to CUDA"
    assert len(shared) == 4 and shared == found("yes")
    assert starts.read_text() == "....."


def test_the_shared_start_has_what_making_an_optimizer_imports(cache, tmp_path):
    script, seen = tmp_path / "script.py", tmp_path / "seen"
    sees = f"import os\nopen({str(seen)!r}, 'a').write(f'{{os.environ[\"STALLOC_LEVERS\"]}} {{\"torch._dynamo\" in sys.modules}}, ')\n"
    script.write_text(INLINE.replace("def train", f"{sees}def train"))
    levers("--only", "fused", "--", sys.executable, str(script), cache=cache)
    assert seen.read_text() == " True, fused True, ", "it takes longer than all else that a trial does"


INLINE = """\
import sys
import torch
from torch import nn

model = nn.Sequential(*(nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(4))).cuda()
if sys.argv[1:] == ["compiled"]:
    model = torch.compile(model, backend="eager")


def train(net, made):
    for _step in range(4):
        net(torch.ones(4096, 256, device="cuda")).sum().backward()
        made.step()
        made.zero_grad()


train(model, torch.optim.AdamW(model.parameters()))
"""


def test_lines_stand_where_the_script_has_names_for_what_they_are_about(cache, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(INLINE)
    (lever,) = levers("--only", "checkpoint", "--", sys.executable, str(script), cache=cache)["levers"]
    line = INLINE.splitlines().index("train(model, torch.optim.AdamW(model.parameters()))") + 1
    assert lever["where"].startswith("before ") and lever["where"].endswith(f"script.py:{line}")
    assert lever["how"] == "import stalloc\nstalloc.apply.checkpoint(*model)"
    assert lever["peak_allocated"] == peak_by_hand(tmp_path, [lever], INLINE) < peak_by_hand(tmp_path, [], INLINE)


def test_offloading_survives_a_trainer_that_replaces_forward(cache, tmp_path):
    text, script = INLINE.replace("    for _step", "    net.forward = type(net).forward.__get__(net)\n    for _step"), tmp_path / "script.py"
    script.write_text(text)
    (lever,) = levers("--only", "offload", "--", sys.executable, str(script), cache=cache)["levers"]
    lever["where"] = f"before script.py:{text.splitlines().index('    for _step in range(4):') + 1}"  # where nothing replaces it
    lever["how"] = lever["how"].replace("model", "net")
    assert lever["peak_allocated"] == peak_by_hand(tmp_path, [lever], text) < peak_by_hand(tmp_path, [], text)


def test_lines_for_a_script_without_an_optimizer_name_its_model(cache, tmp_path):
    own = "class Own:\n    step = zero_grad = lambda self: [p.grad.zero_() for p in model.parameters()]\n\n\n"
    script = tmp_path / "script.py"
    script.write_text(own + INLINE.replace("torch.optim.AdamW(model.parameters())", "Own()"))
    answer = levers("--only", "checkpoint,fused", "--", sys.executable, str(script), cache=cache)
    assert [lever["why"] for lever in answer["skipped"]] == ["no optimizer of torch.optim"]
    assert [lever["where"].partition(" ")[0] for lever in answer["levers"]] == ["before"]


def test_gradients_that_the_forward_pass_finds_are_freed_right_after_the_step(cache, tmp_path):
    zero, backward = "        made.zero_grad()\n", ".sum().backward()\n"
    # Neither the step nor the backward pass needs more than the forward pass with the gradients of the last step.
    text = INLINE.replace(zero, "").replace("4096", "512").replace("range(4))", "range(16))").replace("AdamW", "SGD")
    text = text.replace("        net(", "        loss = net(").replace(backward, f".sum()\n{zero}        loss.backward()\n")
    script = tmp_path / "script.py"
    script.write_text(text)
    (lever,) = levers("--only", "zero_grad_early", "--", sys.executable, str(script), cache=cache)["levers"]
    assert lever["peak_allocated"] == peak_by_hand(tmp_path, [lever], text) < peak_by_hand(tmp_path, [], text)


def test_gradients_of_experts_that_no_optimizer_has_are_not_made(cache, tmp_path):
    trained = "[*model.tokens.parameters(), *model.blocks[4:].parameters(), *model.head.parameters()]"
    text = (PROGRAMS / "levers.py").read_text().replace("in self.blocks:", "in self.blocks[1:]:").replace("AdamW(model.parameters())", f"AdamW({trained})")
    script = tmp_path / "script.py"
    script.write_text(text)
    (lever,) = levers("--only", "no_unused_gradients", "--", sys.executable, str(script), cache=cache)["levers"]
    assert lever["what"].startswith("24 parameters"), "six of each of four blocks, of which the first is never called"
    assert lever["peak_allocated"] == peak_by_hand(tmp_path, [lever], text) < peak_by_hand(tmp_path, [], text)


def test_a_compiled_script_gets_a_line_and_the_levers_of_its_optimizer(cache, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(INLINE)
    answer = levers("--only", "checkpoint,offload,fused", "--", sys.executable, str(script), "compiled", cache=cache)
    why = {lever["name"]: lever["why"] for lever in answer["skipped"]}
    assert why.keys() == {"checkpoint", "offload"} and all("the script is compiled" in said for said in why.values())
    assert [lever["name"] for lever in answer["levers"]] == ["fused"]


#: Gradients of an embedding are sparse, the loss is compiled, and a step has as many words as the host's generator draws after large weights.
DRAWN = """
import torch
from torch import nn

torch.manual_seed(3)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
words, body = nn.Embedding(3000, 512, sparse=True).to(device), nn.Sequential(nn.Linear(512, 2500), nn.Tanh(), nn.Linear(2500, 1100)).to(device)
body.cpu(), nn.init.trunc_normal_(body[0].weight, std=0.02, a=-0.03, b=0.05), nn.init.orthogonal_(body[2].weight), body.to(device)
optimizers = [torch.optim.SparseAdam(words.parameters()), torch.optim.SGD(body.parameters(), lr=0.1)]
loss_of = torch.compile(lambda logits, target: nn.functional.cross_entropy(logits, target), backend="eager")
for step in range(5):
    length = int(torch.randint(100, 4000, ()))
    target = torch.randint(1100, (length,), device=device)
    loss_of(body(words(torch.randint(3000, (length,), device=device))), target).backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
"""


def test_a_trial_draws_what_the_job_draws_and_takes_sparse_gradients_and_compiled_losses(cache, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(DRAWN)
    answer = levers("--only", "as_it_is", "--", sys.executable, str(script), cache=cache)
    assert answer["base"]["peak_allocated"] == peak_by_hand(tmp_path, [], DRAWN)


def test_a_lever_that_the_script_does_not_run_with_gets_the_first_line_of_the_error(cache, tmp_path):
    script = tmp_path / "script.py"
    fails = "if __import__('os').environ['STALLOC_LEVERS']:\n    raise ValueError('not so\\nthe second line')\n\n\n"
    script.write_text(INLINE.replace("def train", fails + "def train"))
    process = run("levers", "--dry-run", GPU, "--only", "fused", "--", sys.executable, str(script), env=cache)
    assert "  fused: the script does not run with it: ValueError: not so\n" in process.stdout, process.stderr


def test_a_script_with_process_groups_is_not_sharded_once_more(cache, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(INLINE.replace("\nmodel", '\ntorch.distributed.init_process_group("nccl")\nmodel', 1))
    answer = levers("--only", "fsdp2_over_2", "--world-size", "2", "--", sys.executable, str(script), cache=cache)
    assert [lever["why"] for lever in answer["skipped"]] == ["the script has process groups already"]


def test_the_lines_that_shard_give_each_rank_its_own_gpu(cache, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(INLINE)
    (lever,) = levers("--only", "fsdp2_over_2", "--", sys.executable, str(script), cache=cache)["levers"]
    lines = INLINE.splitlines()
    start = int(lever["where"].rpartition(":")[2]) - 1
    lines[start:start] = lever["how"].splitlines()
    # As torchrun sets it on a machine with two GPUs.
    lines = ["import os", "os.environ['LOCAL_RANK'] = '1'", *lines, "print('on', {str(p.device) for p in model.parameters()})"]
    script.write_text("\n".join(lines))
    second = ("--devices", "2", "--world-size", "2", "--rank", "1")
    process = run("trace", "--dry-run", GPU, *second, "-o", tmp_path / "traces", "--", sys.executable, script)
    assert "on {'cuda:1'}" in process.stdout, process.stderr


def test_ctrl_c_prints_what_was_found_so_far(cache, tmp_path):
    program, slow = str(PROGRAMS / "levers.py"), tmp_path / "slow.py"
    wait = "from torch.optim.optimizer import register_optimizer_step_pre_hook as before_step\nbefore_step(lambda *_: time.sleep(600) if os.environ['STALLOC_LEVERS'] else None)"
    slow.write_text(f"import os, runpy, sys, time\n{wait}\nsys.argv = [{program!r}]\nrunpy.run_path({program!r})\n")
    command = [COMMAND, "levers", "--dry-run", GPU, "--json", "--", sys.executable, slow]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | cache)
    assert "as it is: peak allocated" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 130 and "stopped; this is what was found so far" in errors
    answer = json.loads(output)
    assert answer["interrupted"] and answer["base"]["peak_allocated"] > 0 and answer["levers"] == [] and answer["combination"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--vary", "MB=1,2", "--", "true", "{MB}"), "levers are tried along a range, NAME=A..B"),
        (("--goal", "much", "--", "true"), "--goal: unknown unit 'much'"),
        (("--", "true", "{MB}"), "the command has {MB}"),
        (("--", "sh", "-c", "exit 3"), "the command failed (exit status 3)"),
    ],
)
def test_an_invalid_question_is_told(cache, arguments, said):
    process = run("levers", "--dry-run", GPU, *arguments, env=cache)
    assert process.returncode == 2 and process.stdout == "" and said in process.stderr


def test_a_script_that_is_edited_while_it_runs_is_no_fault(tmp_path):
    from stalloc._levers import source

    script = tmp_path / "train.py"
    for text in ("for block in (\n", "x = \x00\n", "(" * 100_000):
        script.write_text(text)
        source.loop_names.cache_clear()
        assert source.loop_names(str(script)) == frozenset() and source._statement(str(script), 1) is None
