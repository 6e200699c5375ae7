"""PyTorch's own tests of CUDA memory on stalloc, on the stand-in GPU: what passes natively has to pass served.

    PYTHONPATH=$(scripts/python-package) $(scripts/python-env) bench/pytorch_tests.py FOLDER [--write]

FOLDER is the `test` folder of PyTorch's sources; nothing of it comes with stalloc. The tests need `expecttest`, `hypothesis` and
`psutil`, on PYTHONPATH or installed. Of files of other things too only the tests run whose code speaks of memory, in
processes of a few each, natively, recorded, and in each way in with nothing to start from (`auto`) and from the plans of the recording (`planned`). The tests of `test_cuda_expandable_segments.py` are those of `test_cuda.py` with that
setting, as that file makes them. A test that differs did so twice: among its neighbours and among those that differ.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from lib import pages, runs

#: A test of a file of other things too is one of memory if its code, or that of its class's helpers that it calls, has one of these words.
MEMORY = re.compile(r"memory|alloc|pool\b|record_stream|snapshot|segment|data_ptr|CUDAGraph|cuda\.graph\(|_checkpointed|oom")
PINNED = re.compile(r"def test\w*_pin")
#: The files, by the names that the table has for them, and the words of their tests: all of them if none.
PATHS = """test_cuda test_cuda_multigpu test_cuda_expandable_segments test_cuda_trace test_cuda_sanitizer profiler/test_memory_profiler
    test_multiprocessing test_dataloader distributed/fsdp/test_fsdp_memory"""
FILES = {path.rpartition("/")[2]: path for path in PATHS.split()}
WORDS = {"test_cuda": MEMORY, "test_cuda_expandable_segments": MEMORY, "test_dataloader": PINNED}
#: Classes whose tests all are of memory, and those whose tests are about something else, whatever words they use.
WHOLE = ("TestBlockStateAbsorption", "TestMemPool")
NOT_MEMORY = ("TestCudaOptims", "TestCudaAutocast", "TestGDS")
GPUS = 2


#: The ways to run the tests.
NATIVE, RECORDED, SERVED = "natively", "recorded", ("auto", "planned")


# ---- In the tests' process ----


def tests_of(module, classes: tuple[str, ...], words: re.Pattern | None) -> list[str]:
    """The tests of a module, `Class.name`, in the order of the file."""
    import unittest

    found = []
    for name, kind in vars(module).items():
        if not (isinstance(kind, type) and issubclass(kind, unittest.TestCase) and kind.__module__ == module.__name__):
            continue
        if (classes and name not in classes) or (words and name.startswith(NOT_MEMORY)):
            continue
        for test in unittest.TestLoader().getTestCaseNames(kind):
            function = inspect.unwrap(getattr(kind, test))
            try:
                lines, first = inspect.getsourcelines(function)
            except OSError:
                lines, first = [], 0
            source = "".join(lines)
            helpers = [getattr(kind, helper, None) for helper in re.findall(r"self\.(_\w+)\(", source)]
            source += "".join(inspect.getsource(helper) for helper in helpers if inspect.isfunction(helper))
            if words is None or name in WHOLE or words.search(source):
                found.append((first, f"{name}.{test}"))
    return [test for _, test in sorted(found)]


def work(folder: str, file: str, names: list[str], results: str) -> None:
    """Runs tests and writes a line of JSON before and after each; with none named, writes their names."""
    import unittest

    is_expandable = file == "test_cuda_expandable_segments"
    classes = ("TestCuda", "TestCudaMallocAsync", "TestBlockStateAbsorption") if is_expandable else ()
    path = Path(folder, "test_cuda" if is_expandable else FILES[file])
    sys.argv = [f"{path.name}.py"]
    sys.path[:0] = [str(path.parent), folder]
    module = importlib.import_module(path.name)
    out = open(results, "a", buffering=1)  # noqa: SIM115

    def say(**line) -> None:
        out.write(json.dumps(line) + "\n")

    if not names:
        say(tests=tests_of(module, classes, WORDS.get(file)))
        return
    if is_expandable:
        import torch

        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
        for name in ("TestCuda", "TestBlockStateAbsorption"):
            getattr(module, name).expandable_segments = property(lambda _: True)
    for name in names:
        say(test=name)
        kind, _, method = name.partition(".")
        result = unittest.TestResult()
        unittest.TestSuite([getattr(module, kind)(method)]).run(result)
        bad = result.failures + result.errors
        outcome = "failed" if bad or result.unexpectedSuccesses else "skipped" if result.skipped else "passed"
        say(test=name, outcome=outcome, text="".join(text for _, text in bad or result.skipped))
    say(end=True)


# ---- Outside of it ----


@dataclass
class Outcome:
    """What became of a test in one way."""

    word: str  # passed, failed, skipped, crashed, timed out
    text: str = ""


@dataclass
class Tests:
    """How tests are run here."""

    folder: Path
    scratch: Path
    gpu: str | None
    seconds: float
    verbose: bool
    processes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def command(self, way: str, plans: Path) -> tuple[list[str], dict[str, str]]:
        """The start of a command and its environment."""
        stand_in = ["--dry-run", self.gpu, "--devices", str(GPUS)] if self.gpu else []
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STALLOC_")}
        if way == RECORDED:
            return [str(runs.command()), "trace", "-o", str(plans), *stand_in, "--"], environment
        from_plans = ["--plan", str(plans)] if way == "planned" else []
        native = ["env", "STALLOC_MODE=Torch", "STALLOC_LOG_LEVEL=3"] if way == NATIVE else []
        return [str(runs.command()), "run", *from_plans, *stand_in, "--", *native], environment

    def lines(self, way: str, file: str, names: list[str], plans: Path) -> Iterator[dict | None]:
        """What a process says; none when nothing came for a test's time, and at its end."""
        with self.lock:
            self.processes += 1
            number = self.processes
        results = self.scratch / f"results{number}"
        results.touch()
        command, environment = self.command(way, plans)
        worker = runs.own("--work", results, "--file", file, self.folder)
        log = (self.scratch / f"log{number}").open("wb")
        with log, (self.scratch / f"names{number}").open("w+") as names_file:
            json.dump(names, names_file)
            names_file.seek(0)
            process = subprocess.Popen(
                [*command, *worker], stdin=names_file, stdout=log, stderr=log, env=environment, cwd=self.scratch, start_new_session=True
            )
        try:
            with results.open() as told:
                last, partial = time.monotonic(), ""
                while True:
                    ended = process.poll() is not None  # before reading: what it wrote is read then
                    partial += told.readline()
                    if partial.endswith("\n"):
                        last = time.monotonic()
                        yield json.loads(partial)
                        partial = ""
                    elif ended:
                        yield {"exit": process.returncode, "text": Path(log.name).read_text(errors="replace")[-2000:]}
                        return
                    elif time.monotonic() - last > self.seconds:
                        yield None
                        return
                    else:
                        time.sleep(0.05)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def run(self, way: str, file: str, names: list[str], plans: Path) -> dict[str, Outcome]:
        """The outcomes of tests that share a process; where one takes it down, the rest get another."""
        outcomes: dict[str, Outcome] = {}
        while rest := [name for name in names if name not in outcomes]:
            current = None
            for line in self.lines(way, file, rest, plans):
                if line is None:
                    outcomes[current or rest[0]] = Outcome("timed out", f"nothing for {self.seconds:.0f} s")
                elif "exit" in line:
                    if current or not all(name in outcomes for name in rest):
                        outcomes[current or rest[0]] = Outcome("crashed", f"exit status {line['exit']}\n{line['text']}")
                    elif line["exit"]:
                        outcomes[rest[-1]] = Outcome("crashed", f"exit status {line['exit']} at the end\n{line['text']}")
                elif "outcome" in line:
                    outcomes[line["test"]], current = Outcome(line["outcome"], line["text"]), None
                elif "test" in line:
                    current = line["test"]
        if self.verbose:
            print(f"{file}, {way}: {', '.join(f'{name} {one.word}' for name, one in outcomes.items())}", file=sys.stderr)
        return outcomes

    def names(self, file: str) -> list[str]:
        """The tests of a file."""
        for line in self.lines(NATIVE, file, [], self.scratch):
            if line and "tests" in line:
                return line["tests"]
            if line is None or "exit" in line:
                raise SystemExit(f"{file} of {self.folder} cannot be imported:\n{(line or {}).get('text', '')}")
        raise AssertionError("unreachable: a process ends or is given up")


def compare(tests: Tests, file: str, names: list[str], ways: list[str]) -> dict[str, dict[str, Outcome]]:
    """The outcomes of a few tests in each way, by way."""
    found: dict[str, dict[str, Outcome]] = {}

    def run(names: list[str], ways: list[str]) -> None:
        plans = Path(tempfile.mkdtemp(dir=tests.scratch)) / "recording"
        for way in [NATIVE, *([RECORDED] if "planned" in ways else []), *ways]:
            found.setdefault(way, {}).update(tests.run(way, file, names, plans))

    run(names, ways)
    # What differs may be due to the company: those once more, natively and served.
    different = {way: [name for name in names if found[way][name].word != found[NATIVE][name].word] for way in ways}
    again = [name for name in names if any(name in wrong for wrong in different.values())]
    if again not in ([], names):
        run(again, [way for way in ways if different[way]])
    return found


def summary(text: str) -> str:
    """The line of a failure that says most."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"\w*(\.\w+)*(Error|Exception|exit status|nothing)\b", line)]
    return (errors or lines or [""])[0][:150]


def table(results: dict[str, dict[str, dict[str, Outcome]]], ways: list[str]) -> str:
    """How many tests of each file pass."""
    head = ["file", "tests", "natively", *ways]
    rows = [pages.head(head, texts=len(head))]
    for file, found in results.items():
        native = found[NATIVE]
        passed = [name for name, one in native.items() if one.word == "passed"]
        counts = [sum(found[way][name].word == "passed" for name in passed) for way in ways]
        rows.append(pages.line([f"`{file}`", len(native), len(passed), *counts]))
    return "\n".join(rows)


def differences(results: dict[str, dict[str, dict[str, Outcome]]], ways: list[str], whole: bool) -> list[str]:
    """A line for each test that ends otherwise than natively, or the whole text of it."""
    lines = []
    for file, found in results.items():
        for name, native in found[NATIVE].items():
            others = {way: found[way][name] for way in ways if found[way][name].word != native.word}
            if others:
                lines.append(f"{file}: {name}: natively {native.word}; {', '.join(others)}: {told(others)}")
                lines += [f"==== {way}: {one.word}\n{one.text}" for way, one in others.items() if whole]
    return lines


def told(words: dict[str, Outcome]) -> str:
    """What ways say of a test, once for each text."""
    return "; ".join(dict.fromkeys(f"{one.word}: {summary(one.text)}" for one in words.values()))


def main() -> int:
    parser = runs.parser("pytorch-tests.md")
    parser.add_argument("folder", type=Path, help="the `test` folder of PyTorch's sources")
    parser.add_argument("-k", metavar="REGEX", help="only tests whose Class.name has this in it")
    parser.add_argument("--file", action="append", choices=FILES, help="only this file; may be repeated")
    parser.add_argument("--way", action="append", choices=SERVED, help="only this way; may be repeated")
    parser.add_argument("--gpu", default="h100-80gb", help="the stand-in's model")
    parser.add_argument("--on-gpu", action="store_const", const=None, dest="gpu", help="on this machine's GPU")
    parser.add_argument("--seconds", type=float, default=120, help="time for a test, start of its process included")
    parser.add_argument("--together", type=int, default=24, metavar="N", help="tests in a process")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes at a time")
    parser.add_argument("--verbose", action="store_true", help="say each outcome, and the whole text of what differs")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(str(options.folder), options.file[0], json.load(sys.stdin), options.work)
        return 0
    ways = [way for way in SERVED if not options.way or way in options.way]
    scratch = Path(tempfile.mkdtemp(prefix="pytorch-tests-"))
    tests = Tests(options.folder.resolve(), scratch, options.gpu, options.seconds, options.verbose)
    results: dict[str, dict[str, dict[str, Outcome]]] = {}
    parts: list[tuple[str, list[str]]] = []
    for file in options.file or FILES:
        names = [name for name in tests.names(file) if not options.k or re.search(options.k, name)]
        results[file] = {way: {} for way in [NATIVE, RECORDED, *ways]}
        together = 1 if file == "test_cuda_trace" else options.together  # each of its tests wants a process of its own
        parts += [(file, names[start : start + together]) for start in range(0, len(names), together)]
    with ThreadPoolExecutor(options.jobs) as pool:
        for (file, _), outcomes in zip(parts, pool.map(lambda part: compare(tests, *part, ways), parts)):
            for way, found in outcomes.items():
                results[file][way].update(found)
    print(table(results, ways), *differences(results, ways, options.verbose), sep="\n")
    if options.write:
        pages.write("files", table(results, ways), "pytorch-tests.md")
    shutil.rmtree(scratch, ignore_errors=True)
    passed = [(found, name) for found in results.values() for name, one in found[NATIVE].items() if one.word == "passed"]
    return int(any(found[way][name].word != "passed" for found, name in passed for way in ways))


if __name__ == "__main__":
    sys.exit(main())
