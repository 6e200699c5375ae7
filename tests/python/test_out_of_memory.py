"""When memory runs out, the answer is there with no preparation: what it died of, the line, who holds it, and what helps."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from report_checker import faults
from runs import PROGRAMS, run

# 824 MiB are left to PyTorch.
GPU = {"STALLOC_DRYRUN_TOTAL_MIB": "1024", "STALLOC_DRYRUN_CONTEXT_MIB": "200"}
ALL = PROGRAMS / "why" / "all_of_them.py"

#: Verdict, cause, and what the name of the holder, or the facts, and the advice must have in them.
DEATHS = {
    "cache_by_cat": ("growth", "enlarged", "`self.cache` of `Attention` (4 of them)", "torch.empty("),
    "graph_pools": ("fragmentation", "graph_pools", "private pools", "pool="),
    "retry_in_except": ("too_large", "exception", "the exception being handled (traceback frame", "except"),
    "vocabulary_logits": ("too_large", "logits", "tensor `logits`", "chunk_loss"),
    "before_optimizer_states": ("too_large", "optimizer_states", "states", "Adafactor"),
    "first_optimizer_step": ("too_large", "optimizer_states", "optimizer states of AdamW", "Adafactor"),
    "evaluation_with_graph": ("growth", "no_grad", "autograd graphs of list `predictions`", "no_grad"),
    "hook_keeps": ("growth", "hook", "list `seen` in the closure of hook at deaths/hook_keeps.py:13", "handle.remove()"),
    "library_memory": ("too_large", "libraries", "outside of PyTorch's allocator", "nvidia-smi"),
    "other_process": ("too_large", "other_processes", "Process 4711 (python serve.py) has 560 MiB", "CUDA_VISIBLE_DEVICES"),
    "gradient_buckets": ("too_large", "gradient_buckets", "buckets of DistributedDataParallel", "gradient_as_bucket_view=True"),
    "graph_kept_by_backward": ("growth", "graph", "autograd graphs of list `history`", "loss.item()"),
    "dataset_on_gpu": ("growth", "kept", "dict `self.samples` of `Images`", '.to("cuda"'),
    "pinned_memory": ("too_large", "pinned_memory", "pinned memory of the host", "pin_memory=True"),
    "reference_cycle": ("growth", "cycles", "`self.batch` of `Context`", "gc.collect()"),
    "memory_fraction": ("too_large", "limit", "allows itself 307 MiB of the GPU's 1.00 GiB", "set_per_process_memory_fraction(1.0)"),
    "views_keep_base": ("growth", "kept", "list `features`", ".clone()"),
    "stored_exception": ("too_large", "exception", "a `OutOfMemoryError` that is kept (traceback frame", "str(error)"),
    "checkpoint_on_gpu": ("too_large", "kept", "dict `checkpoint`", 'map_location="cpu"'),
    "class_variable": ("growth", "kept", "dict `Rotary.tables`", "cache.pop"),
    "lambda_callbacks": ("growth", "kept", "list `self.at_end` of `Callbacks`", "each `function`"),
    "generators_kept": ("growth", "kept", "list `live` of `search`", "each `generator`"),
    "coroutines": ("growth", "kept", "coroutine `answer` at deaths/coroutines.py:9", "semaphore"),
    "futures_kept": ("growth", "kept", "list `futures` of `main`", "each `Future`"),
    "function_attribute": ("growth", "kept", "dict `mask.known`", "cache.pop"),
    "accumulate_hook": ("growth", "hook", "dict `norms`", "handle.remove()"),
    "hook_in_self": ("growth", "hook", "dict `self.activations` of `ActivationRecorder`", "handle.remove()"),
    "teacher_graph": ("too_large", "no_grad", "No optimizer has the parameters", "no_grad"),
    "long_outlier": ("too_large", "outlier", "Until shortly before, deaths/long_outlier.py:12", "LONGEST"),
    "optimizer_twice": ("growth", "kept", "dict `sessions`", "del model"),
    "errors_in_list": ("growth", "exception", "a `ValueError` that is kept (traceback frame deaths/errors_in_list.py:13), one of", "str(error)"),
    "negatives_queue": ("growth", "enlarged", "buffer `negatives` of `Contrast`", "torch.empty("),
    "one_backward_for_all": ("growth", "graph", "autograd graph of `total`", "(loss / micro_batches).backward()"),
    "optimizer_each_phase": ("growth", "kept", "list `schedules`", "the optimizer that are used now"),
    "rotary_lru": ("growth", "kept", "lru_cache of `tables`", "@functools.lru_cache(maxsize="),
    "running_metric": ("growth", "graph", "autograd graphs of `self.total` of `Mean`", "loss.item()"),
    "sessions_server": ("growth", "kept", "dict `self.requests` of `Engine`", "each `Request`"),
    "validate_in_method": ("growth", "no_grad", "autograd graphs of list `self.outputs` of `Trainer`", "no_grad"),
    "weak_features": ("growth", "kept", "WeakKeyDictionary `features`", "outputs.append"),
    "best_weights": ("growth", "kept", "list `history`", "copy.deepcopy(model).cpu()"),
    "dense_embedding": ("too_large", "weights", "415 MiB of gradients were still to be made", "sparse=True"),
    "frames_deque": ("growth", "kept", "deque `memory`", ".cpu()"),
    "hidden_not_detached": ("growth", "graph", "autograd graph of `loss`", "hidden.detach()"),
    "hidden_states_kept": ("growth", "kept", "dict `features`", "cache.pop"),
    "large_evaluation": ("too_large", "one_request", "asks for 512 MiB", "x.split"),
    "lbfgs_history": ("growth", "kept", "optimizer states of LBFGS", "history_size=10"),
    "next_stage": ("too_large", "models", "weights that another optimizer has trained already", "del model, optimizer"),
    "outputs_cat_at_end": ("growth", "kept", "list `outputs`", ".cpu()"),
    "perceptual_loss": ("too_large", "activations", "wait in autograd's graphs", "smaller micro-batch"),
    "projection_update": ("growth", "graph", "autograd graph of `projection`", "hidden.detach()"),
    "replay_buffer": ("too_large", "one_request", "asks for 7.15 GiB", "x.split"),
    "sample_gradients": ("too_large", "one_request", "One request at deaths/sample_gradients.py:14 <module> asks for 512 MiB", "x.split"),
    "stairs": ("growth", "kept", "list `seen`", ".cpu()"),
    "trajectory_buffer": ("growth", "graph", "autograd graphs of list `log_probabilities`", "(loss / micro_batches).backward()"),
    "whole_dataset_tensor": ("too_large", "kept", "tensor `data` in deaths/whole_dataset_tensor.py:4", ".to("),
    "shadow_copies": ("too_large", "kept", "list `averages`", "copy.deepcopy(model).cpu()"),
    "itertools_cycle": ("growth", "kept", "itertools.cycle, which keeps", "yield from loader"),
    "penalty_history": ("growth", "graph", "autograd graphs of list `penalties`", "loss.item()"),
    "foreach_update": ("too_large", "optimizer_states", "optimizer states of Adam", "fused=True"),
    "gan_not_detached": ("too_large", "activations", "wait in autograd's graphs", "smaller micro-batch"),
    "logits_of_validation": ("growth", "kept", "list `logits` of `validate`", ".cpu()"),
    "fp32_upcast": ("too_large", "logits", "are logits of a loss over classes", "chunk_loss"),
    "reference_logprobs": ("too_large", "logits", "are logits of a loss over classes", "chunk_loss"),
    "warm_start_kept": ("too_large", "kept", "`self.weights` of `Pretrained`", 'map_location="cpu"'),
    "masked_tokens_by_hand": ("too_large", "logits", "are logits of a loss over classes", "chunk_loss"),
    "resume_optimizer_twice": ("too_large", "kept", "states of another AdamW for the same parameters", "drop the other"),
    "ctx_output": ("growth", "cycles", "functions of autograd that keep their own result", "ctx.save_for_backward"),
    "ema_snapshots": ("growth", "cycles", "parameters of `Average`", "gc.collect()"),
    "recursive_closure": ("growth", "cycles", "closure of `check.<locals>.gather`", "gc.collect()"),
    "unfreeze_backbone": ("too_large", "optimizer_states", "parameters are trained that were not before", "Train fewer layers"),
    "outputs_of_chunks": ("growth", "graph", "autograd graphs of defaultdict `outputs` of `render`", "result.detach()"),
    "inner_steps": ("too_large", "activations", "and no optimizer has stepped yet", "fewer turns of the loop"),
    "mask_per_layer": ("too_large", "weights", "buffer `mask` of `Attention`", "Have the layers share"),
    "shampoo": ("too_large", "one_request", "asks for 549 MiB", "x.split"),
    "federated_clients": ("too_large", "models", "list `clients`", 'model.to("cpu")'),
    "slide_evaluation": ("too_large", "activations", "are made by a forward pass", "where no gradient is needed"),
    "delta_weights": ("too_large", "remade", "are made of weights alone", "a smaller batch does not help"),
    "nameless_list": ("growth", "kept", "a list without a name (of a comprehension", ".cpu()"),
    "ranks_on_one_gpu": ("too_large", "other_processes", "540 MiB of it are processes of this very command", "torch.cuda.set_device"),
    "save_clones": ("too_large", "kept", "are copies of weights that deaths/save_clones.py:6", "value.cpu()"),
    "unbounded_prefetch": ("growth", "kept", "deque `self.queue` of `Queue`", "maxsize"),
    "running_variance": ("growth", "graph", "autograd graphs of `self.running` of `Norm`", "hidden.detach()"),
    "vocabulary_grows": ("growth", "kept", "optimizer states of Adam", "of its parameters are in no model"),
    "beam_search": ("growth", "enlarged", "list `", "torch.empty("),
    "lengths_in_lru": ("fragmentation", "pieces", "", "stalloc run"),
    "triplet_cubed": ("too_large", "activations", "the line that failed", "smaller micro-batch"),
    "prefetch_ahead": ("too_large", "kept", "deque `self.ahead` of `Prefetcher`", "on the host"),
    "sam_optimizer": ("too_large", "optimizer_states", "states of SAM, made since the last backward pass", "smaller states"),
    "module_inputs": ("too_large", "kept", "are held by attributes of modules, such as `self.", "lives on after the layer"),
    "predictions_cat": ("growth", "enlarged", "tensor `predictions`", "torch.empty("),
    "eval_mode_training": ("too_large", "activations", "wait in autograd's graphs", "smaller micro-batch"),
    "window_volume": ("too_large", None, "tensor `result` of `slide`", "on the host"),
    "checkpoint_whole": ("too_large", "activations", "wait in autograd's graphs", "smaller micro-batch"),
    "losses_of_tasks": ("too_large", "activations", "wait in autograd's graphs", "smaller micro-batch"),
    "casts_per_call": ("growth", "graph", "autograd graph of `hidden`", "torch.autocast"),
    "frozen_input_grad": ("growth", "kept", "796 MiB are held by list `attacked`", ".cpu()"),
    "leak_by_loss": ("growth", "no_grad", "autograd graph of `total`", "no_grad"),
    "leak_by_list": ("growth", "kept", "list `outputs`", ".cpu()"),
    "growing_cache": ("growth", "kept", "dict `masks`", "cache.pop"),
    "one_layer_too_large": ("too_large", "weights", "parameters of `Model`", ""),
    "fragmentation_by_lengths": ("fragmentation", "pieces", "", "stalloc run"),
    "fragmentation_by_recomputation": ("fragmentation", "pieces", "", "stalloc run"),
}
if os.environ.get("STALLOC_TESTS") != "all":  # two of each kind are enough where it is not nightly
    KINDS = [(verdict, cause) for verdict, cause, _, _ in DEATHS.values()]
    DEATHS = {name: told for place, (name, told) in enumerate(DEATHS.items()) if KINDS[:place].count(KINDS[place]) < 2 or name == "futures_kept"}
#: What the advice comes to in each program: the change of a line or two after which it runs.
CHANGES = {
    "cache_by_cat": [
        ("torch.zeros(32, 0, 1024, device=\"cuda\")", "torch.empty(32, 600, 1024, device=\"cuda\")"),
        ("self.cache = torch.cat([self.cache, self.key(x)], 1)", "self.cache[:, :1] = self.key(x)"),
    ],
    "graph_pools": [("torch.cuda.graph(graph)", "torch.cuda.graph(graph, pool=graphs[0][0].pool() if graphs else None)"), ("64, 8192, 64", "64, 1024, 64")],
    "evaluation_with_graph": [("for _ in range(400):", "torch.set_grad_enabled(False)\nfor _ in range(400):")],
    "hook_keeps": [("seen.append(output.detach())", "seen[:] = [output.detach()]")],
    "gradient_buckets": [("DistributedDataParallel(model)", "DistributedDataParallel(model, gradient_as_bucket_view=True)")],
    "graph_kept_by_backward": [("history.append(loss)", "history.append(loss.item())")],
    "dataset_on_gpu": [(".cuda()  # named", ""), ("net(batch)", "net(batch.cuda())")],
    "first_optimizer_step": [("torch.optim.AdamW(", "torch.optim.Adafactor(")],
    "vocabulary_logits": [
        ("    logits = head(body(embedding(tokens)))  # named\n", ""),
        (
            "nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())",
            "sum(torch.utils.checkpoint.checkpoint(lambda h, t: nn.functional.cross_entropy(head(h), t), h, t, use_reentrant=False)"
            " for h, t in zip(body(embedding(tokens)).flatten(0, 1).chunk(16), tokens.flatten().chunk(16)))",
        ),
    ],
}


def dry_run(directory: Path, *command: str | Path, **env: str):
    """A command on a small stand-in GPU, which nobody records."""
    own = [f"{name}={value}" for name, value in env.items()]
    return run("trace", "--dry-run", "rtx4090", "-o", directory, "--", "env", "-u", "STALLOC_TRACE_DIR", *own, *command, env=GPU)


def report(recording: Path) -> dict:
    done = run("report", "--json", recording)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["inputs"]
    return found["devices"][0]


def line(name: str) -> str:
    """Where the program says that it is named."""
    for folder in ("deaths", "why"):
        file = PROGRAMS / folder / f"{name}.py"
        if file.exists():
            numbers = [number for number, text in enumerate(file.read_text().splitlines(), 1) if "# named" in text]
            return f"{folder}/{name}.py:{numbers[0]}" if numbers else ""
    raise KeyError(name)


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folder that each program left behind."""
    folder = tmp_path_factory.mktemp("deaths")
    places = {}
    # Two runs: one of all would take as long as one that hangs on a busy machine.
    for part, names in enumerate((list(DEATHS)[::2], list(DEATHS)[1::2])):
        dumped = folder / f"dumps{part}"
        done = dry_run(folder, sys.executable, ALL, *names, STALLOC_MODE="Torch", STALLOC_LOG_LEVEL="3", STALLOC_OUT_OF_MEMORY=str(dumped))
        assert [name for name in names if f"{name}: out of memory" not in done.stdout] == [], done.stdout + done.stderr[-2000:]
        for rank, name in enumerate(names):
            found = list(dumped.glob(f"rank{rank}_*"))
            assert len(found) == 1, (name, found, done.stderr[-2000:])
            places[name] = found[0]
    return places


def test_verdict_line_holder_and_advice_are_right_for_each_death(dumps):
    wrong = {}
    for name, (verdict, cause, holder, advice) in DEATHS.items():
        device = report(dumps[name] / "memory.pickle")
        told = " ".join([*device["facts"], *(one["holder"] for one in device["holders"][:4])]).replace("List `", "list `").replace("Dict `", "dict `")
        sites = [one["site"] for one in (device["growth"] or {}).get("sites", [])] + [one["site"] for one in device["peak_by_site"]]
        advised = " ".join(f"{one['text']} {one['command']}" for one in device["advice"])
        seen = {
            "verdict": (device["verdict"], device["cause"]) == (verdict, cause),
            "line": any(site.startswith(line(name)) for site in [*sites[:3], device["out_of_memory"]["site"] if device["out_of_memory"] else ""] if site),
            "holder": holder in told,
            "advice": advice in advised,
            "sentences": not faults(device),
        }
        # What failed has no line of the program that is to blame.
        if name in ("graph_pools", "pinned_memory", "library_memory", "other_process", "ranks_on_one_gpu", "before_optimizer_states", "gradient_buckets"):
            seen.pop("line")
        if not all(seen.values()):
            wrong[name] = (seen, faults(device), device["verdict"], device["cause"], device["headline"], told, advised, sites[:3])
    assert not wrong, json.dumps(wrong, indent=1)


def test_the_first_failure_is_told_of_and_how_many_followed(dumps):
    device = report(dumps["futures_kept"] / "memory.pickle")
    assert any("the first to fail" in fact for fact in device["facts"]), device["facts"]
    assert device["out_of_memory"]["times"] == 1, device["out_of_memory"]


def test_a_dump_is_a_recording_a_page_and_a_summary_of_some_ten_lines(dumps):
    for name, place in dumps.items():
        assert {file.name for file in place.iterdir()} == {"memory.pickle", "report.html", "summary.txt"}, name
        assert 3 <= len((place / "summary.txt").read_text().splitlines()) <= 14, (place / "summary.txt").read_text()


def test_the_change_that_is_advised_lets_each_program_run(tmp_path):
    (tmp_path / "why").mkdir()
    shutil.copy(ALL, tmp_path / "why")
    for name, changes in CHANGES.items():
        text = (PROGRAMS / "deaths" / f"{name}.py").read_text()
        for wrong, right in changes:
            assert wrong in text, (name, wrong)
            text = text.replace(wrong, right)
        (tmp_path / "why" / f"{name}.py").write_text(text)
    done = dry_run(tmp_path / "unused", sys.executable, tmp_path / "why" / "all_of_them.py", *CHANGES)
    assert [name for name in CHANGES if f"{name}: done" not in done.stdout] == [], done.stdout + done.stderr[-3000:]


def test_a_served_program_is_reported_too_and_one_that_tries_again_gets_one_line(tmp_path):
    place = tmp_path / "dumps"
    served = {"STALLOC_OUT_OF_MEMORY": str(place), **GPU}
    done = run("run", "--dry-run", "rtx4090", "--", sys.executable, PROGRAMS / "deaths" / "hook_keeps.py", env=served)
    assert done.returncode == 1 and "the report is in" in done.stderr and "OutOfMemoryError" in done.stderr, done.stderr
    (made,) = place.iterdir()
    device = report(made / "memory.pickle")
    assert (device["verdict"], device["cause"]) == ("growth", "hook"), device["headline"]
    assert "list `seen` in the closure of hook" in device["holders"][0]["holder"], device["holders"]
    shutil.rmtree(place)
    done = run("run", "--dry-run", "rtx4090", "--", sys.executable, PROGRAMS / "smaller_batch.py", env=served)
    assert done.returncode == 0 and "trained with" in done.stdout, done.stderr
    assert not place.exists()
    told = [text for text in done.stderr.splitlines() if "memory ran out" in text]
    assert len(told) == 1 and "the program went on" in told[0], done.stderr
