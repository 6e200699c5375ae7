"""Every example runs without a GPU, in each of its options, and its steps are found."""

from runs import actions

import stalloc

SMALL = "--layers 2 --width 64 --heads 2 --length 64 --batch 2 --vocabulary 100"
MEGATRON = (
    "megatron_gpt --layers 4 --hidden 64 --heads 4 --key-value-heads 4 --feed-forward 128 --length 32 --vocabulary 128 "
    "--micro-batch 2 --micro-batches 4"
)
EXAMPLES = (
    f"gpt {SMALL}",
    f"variable_length {SMALL}",
    f"evaluation {SMALL}",
    f"offload {SMALL}",
    "llama --layers 1 --length 64 --checkpoint",
    f"{MEGATRON} --data 8",
    f"{MEGATRON} --pipeline 4",
    f"{MEGATRON} --pipeline 2 --chunks 2 --recompute full",
    f"{MEGATRON} --tensor 4 --flash",
    f"{MEGATRON} --data 8 --distributed-optimizer --recompute selective",
    f"{MEGATRON} --experts 8 --top-k 2 --tensor 2 --expert 2",
    f"{MEGATRON} --experts 60 --top-k 4 --expert 4 --recompute full",
    f"{MEGATRON} --model qwen2.5-7b --key-value-heads 2 --tensor 2 --pipeline 2 --chunks 2 --flash",
)


def test_every_example_runs_in_each_of_its_options_and_known_decisions_fall_as_in_a_real_run(record):
    options = ("--world-size", "8", "--rank", "3", "--steps", "2", "--stacks", "0")
    recorded = record("examples.py", *EXAMPLES, "framework_decisions", options=options)
    ends = [line for line in recorded.process.stderr.splitlines() if line.startswith("ended with ")]
    assert ends == [f"ended with 0: {line}" for line in (*EXAMPLES, "framework_decisions")], recorded.process.stderr
    traces = sorted(recorded.directory.glob("*.trace"), key=lambda path: path.stat().st_mtime_ns)
    assert len(traces) == len(EXAMPLES) + 1
    for line, path in zip(EXAMPLES, traces):
        (trace,) = stalloc.read_trace(path)["traces"]
        found = actions(trace["entries"])
        marks = [(index, action) for index, action in enumerate(found) if action in ("step_begin", "step_end")]
        # Where several optimizers step together, the first step is said to end again with each of them.
        ends = [index for (index, action), (_, after) in zip(marks, [*marks[1:], (0, "")]) if action == "step_end" != after]
        assert len(ends) == 2, line
        first, second = ends
        assert found[first:second].count("alloc") > 100, line
