"""Runs each shape of script on the CPU as it is, and with each lever: its lines written in, and applied from outside; prints what came of it as JSON.

    lever_harness.py FOLDER [SHAPE[:LEVER[+LEVER...],...]...]

One process imports PyTorch; each run is a copy of it. A cell is ``bitwise``, ``rounding``, ``refused: REASON`` or ``WRONG: ...``.
"""

import gc
import json
import marshal
import os
import re
import runpy
import sys
import tempfile
import textwrap
import traceback
from pathlib import Path

import torch
import torch._dynamo  # what each copy would import
import torch.distributed
import torch.utils.checkpoint

from stalloc._levers import host_states, spill
from stalloc._levers.catalogue import LEVERS
from stalloc._levers.watching import Observed, Watch

#: Where sums have another order, figures may differ by this part of the largest of their kind.
ROUNDING = 2e-4


def forked(ranks, job):
    """What a job says in a copy of this process; of several, what the first says."""
    reading, children = None, []
    store = tempfile.mktemp()
    for rank in range(ranks):
        ends = os.pipe()
        child = os.fork()
        if child == 0:
            torch.set_num_threads(1)  # PyTorch makes its pool anew at the first such call in a copy; of two threads at once, one fails
            os.environ.update(RANK=str(rank), STORE=store)
            try:
                said = job()
            except BaseException as error:
                said = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
            with os.fdopen(ends[1], "wb") as out:
                marshal.dump(said if rank == 0 else {}, out)  # nobody reads what the others say
            os._exit(0)
        os.close(ends[1])
        children.append(child)
        reading = ends[0] if reading is None else reading
    with os.fdopen(reading, "rb") as given:
        said = marshal.load(given)
    for child in children:
        os.waitpid(child, 0)
    return said


def ran(script, watch=None):
    def job():
        sys.argv = [str(script)]
        watching = watch() if watch else None
        result = runpy.run_path(str(script), run_name="__main__")["RESULT"]
        said = {"result": result}
        if watching is not None:
            said["applied"] = watching.applied
            if isinstance(watching, Seen):
                said["levers"] = [lever.found(watching.program) for lever in LEVERS]
        return said

    return job


class Seen(Observed):
    """As a trial sees a script as it is."""

    def __init__(self):
        super().__init__(torch, [])

    def backward_called(self, *arguments, **options):
        super().backward_called(*arguments, **options)
        if torch._C._current_graph_task_id() == -1:
            self.program.backward_called()


def written(text, how, where):
    """The script with the lines of a lever, as a user would write them in."""
    lines = text.splitlines()
    kind, first, last = re.fullmatch(r"(?:(before|after) )?[^:]+:(\d+)(?:-(\d+))?", where).groups()
    first, last = int(first), int(last or first)
    indent = re.match(r"\s*", lines[first - 1])[0]
    start, end = {"before": (first - 1, first - 1), "after": (last, last), None: (first - 1, last)}[kind]
    lines[start:end] = textwrap.indent(how, indent).splitlines()
    return "\n".join(lines) + "\n"


def compared(said, expected):
    if "error" in said:
        return f"WRONG: {said['error']}"
    result = said["result"]
    if result == expected:
        return "bitwise"
    flat = [[], []]
    for one, other in zip(result, expected):
        if isinstance(one, (int, float)) or isinstance(one, list) and all(isinstance(value, float) for value in one):
            flat[0].append(torch.tensor(one, dtype=torch.double).flatten())
            flat[1].append(torch.tensor(other, dtype=torch.double).flatten())
        elif one != other:
            return f"WRONG: {one} in place of {other}"
    if len(result) != len(expected) or any(len(one) != len(other) for one, other in zip(*flat)):
        return "WRONG: more or fewer figures"
    off = max(((one - other).abs().max() / other.abs().max().clamp(min=1e-3)).item() for one, other in zip(*flat) if len(other))
    return "rounding" if off < ROUNDING else f"WRONG: off by {off:.1e}"


def cells(script, folder, only):
    text = script.read_text()
    ranks = 2 if "# ranks: 2" in text else 1
    expected = forked(ranks, ran(script))
    seen = forked(ranks, ran(script, Seen))
    if "error" in expected or "error" in seen or seen["result"] != expected["result"]:
        return {"as it is": f"WRONG: {expected.get('trace')} {seen.get('trace')}"}
    found = {"as it is": "bitwise"}
    of_lever = {lever.name: lever for lever in LEVERS}
    for lever in seen["levers"]:
        name = lever["name"]
        if lever["group"] == "sharding" or (only and name not in only):
            continue
        if lever["why_not"]:
            found[name] = f"refused: {lever['why_not']}"
            continue
        outside = forked(ranks, ran(script, lambda name=name: Watch(torch, [of_lever[name]])))
        ways = {"outside": compared(outside, expected["result"])}
        if outside.get("applied") == []:
            ways["outside"] = "WRONG: not applied"
        if lever["where"].startswith("nowhere"):
            ways["lines"] = "bitwise"
        else:
            edited = folder / script.name
            edited.write_text(written(text, lever["how"], lever["where"].replace(os.path.relpath(script), script.name)))
            ways["lines"] = compared(forked(ranks, ran(edited)), expected["result"])
        wrong = [f"{way}: {said}" for way, said in ways.items() if said.startswith("WRONG")]
        if lever["numerics"] == "change" and all("WRONG: off" in said for said in wrong):
            found[name] = "change"
        else:
            found[name] = "; ".join(wrong) or ("rounding" if "rounding" in ways.values() else "bitwise")
            print(script.stem, name, found[name], file=sys.stderr, flush=True)
            if wrong:
                found[name] += f"\n{lever['where']}\n{lever['how']}"
    for name in [name for name in only or () if "+" in name]:  # a set, from outside alone
        outside = forked(ranks, ran(script, lambda name=name: Watch(torch, [lever for lever in LEVERS if lever.name in name.split("+")])))
        is_whole = len(outside.get("applied", [])) == name.count("+") + 1
        found[name] = compared(outside, expected["result"]) if is_whole or "error" in outside else f"WRONG: only {outside['applied']}"
    return found


def main():
    torch.set_num_threads(1)
    gc.freeze()  # what PyTorch made as it was imported is no run's garbage
    spill.LEAST = host_states.LEAST = host_states.LEAST_PIECE = 1  # the shapes' tensors are small
    shapes, folder = Path(sys.argv[1]), Path(tempfile.mkdtemp())
    chosen = {shape: levers.split(",") if levers else [] for shape, _, levers in (word.partition(":") for word in sys.argv[2:])}
    sys.path.insert(0, str(shapes))
    scripts = [path for path in sorted(shapes.glob("*.py")) if path.name != "nets.py" and (not chosen or path.stem in chosen)]
    print(json.dumps({script.stem: cells(script, folder, chosen.get(script.stem)) for script in scripts}, indent=1))


main()
