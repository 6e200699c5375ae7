"""PyTorch's own tests of CUDA memory on stalloc, on the stand-in GPU: what passes natively has to pass served.

    PYTHONPATH=$(scripts/python-package) $(scripts/python-env) bench/pytorch_tests.py FOLDER [--write bench/results/pytorch-tests.md]

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
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

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


@dataclass(frozen=True)
class Way:
    """One way to run the tests."""

    name: str
    is_planned: bool = False


NATIVE = Way("natively")
RECORDED = Way("recorded")
SERVED = (Way("auto"), Way("planned", True))


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

    def command(self, way: Way, plans: Path) -> tuple[list[str], dict[str, str]]:
        """The start of a command and its environment."""
        import stalloc

        stand_in = ["--dry-run", self.gpu, "--devices", str(GPUS)] if self.gpu else []
        command = [str(Path(stalloc.__file__).parent / "_bin" / "stalloc")]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STALLOC_")}
        if way is RECORDED:
            return [*command, "trace", "-o", str(plans), *stand_in, "--"], environment
        from_plans = ["--plan", str(plans)] if way.is_planned else []
        command += ["run", *from_plans, *stand_in, "--"]
        if way is NATIVE:
            return [*command, "env", "STALLOC_MODE=Torch", "STALLOC_LOG_LEVEL=3"], environment
        return command, environment

    def lines(self, way: Way, file: str, names: list[str], plans: Path) -> Iterator[dict | None]:
        """What a process says; none when nothing came for a test's time, and at its end."""
        with self.lock:
            self.processes += 1
            number = self.processes
        results = self.scratch / f"results{number}"
        results.touch()
        command, environment = self.command(way, plans)
        worker = [sys.executable, str(Path(__file__).resolve()), "--work", str(results), "--file", file, str(self.folder)]
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

    def run(self, way: Way, file: str, names: list[str], plans: Path) -> dict[str, Outcome]:
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
            print(f"{file}, {way.name}: {', '.join(f'{name} {one.word}' for name, one in outcomes.items())}", file=sys.stderr)
        return outcomes

    def names(self, file: str) -> list[str]:
        """The tests of a file."""
        for line in self.lines(NATIVE, file, [], self.scratch):
            if line and "tests" in line:
                return line["tests"]
            if line is None or "exit" in line:
                raise SystemExit(f"{file} of {self.folder} cannot be imported:\n{(line or {}).get('text', '')}")
        raise AssertionError("unreachable: a process ends or is given up")


def compare(tests: Tests, file: str, names: list[str], ways: list[Way]) -> dict[str, dict[str, Outcome]]:
    """The outcomes of a few tests in each way, by way."""
    plans = Path(tempfile.mkdtemp(dir=tests.scratch)) / "recording"
    found = {NATIVE.name: tests.run(NATIVE, file, names, plans)}
    if any(way.is_planned for way in ways):
        found[RECORDED.name] = tests.run(RECORDED, file, names, plans)
    for way in ways:
        found[way.name] = tests.run(way, file, names, plans)
    # What differs may be due to the company: those once more, natively and served.
    different = {way: [n for n in names if found[way.name][n].word != found[NATIVE.name][n].word] for way in ways}
    again = [name for name in names if any(name in wrong for wrong in different.values())]
    if again != names and again:
        fresh = Path(tempfile.mkdtemp(dir=tests.scratch)) / "recording"
        found[NATIVE.name].update(tests.run(NATIVE, file, again, fresh))
        if any(way.is_planned for way, wrong in different.items() if wrong):
            found[RECORDED.name].update(tests.run(RECORDED, file, again, fresh))
        for way in ways:
            found[way.name].update(tests.run(way, file, again, fresh) if different[way] else {})
    return found


def summary(text: str) -> str:
    """The line of a failure that says most."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"\w*(\.\w+)*(Error|Exception|exit status|nothing)\b", line)]
    return (errors or lines or [""])[0][:150].replace("|", "\\|")


def table(results: dict[str, dict[str, dict[str, Outcome]]], ways: list[Way]) -> str:
    """The table, and below it what differs."""
    head = ["file", "tests", "natively", *(way.name for way in ways)]
    rows = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    differences = []
    for file, found in results.items():
        native = found[NATIVE.name]
        passed = [name for name, one in native.items() if one.word == "passed"]
        counts = [sum(found[way.name][name].word == "passed" for name in passed) for way in ways]
        rows.append(f"| `{file}` | {len(native)} | {len(passed)} | " + " | ".join(map(str, counts)) + " |")
        for name in native:
            words = {way.name: found[way.name][name] for way in ways if found[way.name][name].word != native[name].word}
            if words:
                differences.append(f"| `{file}`: `{name}` | {native[name].word} | {', '.join(words)} | {told(words)} |")
    if differences:
        rows += ["", "| test | natively | otherwise in | there |", "|---|---|---|---|", *differences]
    return "\n".join(rows) + "\n"


def told(words: dict[str, Outcome]) -> str:
    """What ways say of a test, once for each text."""
    return "; ".join(dict.fromkeys(f"{one.word}: {summary(one.text)}" for one in words.values()))


BEGIN, END = "<!-- bench/pytorch_tests.py -->\n", "<!-- end -->\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the `test` folder of PyTorch's sources")
    parser.add_argument("-k", metavar="REGEX", help="only tests whose Class.name has this in it")
    parser.add_argument("--file", action="append", choices=FILES, help="only this file; may be repeated")
    parser.add_argument("--way", action="append", choices=[way.name for way in SERVED], help="only this way; may be repeated")
    parser.add_argument("--gpu", default="h100-80gb", help="the stand-in's model")
    parser.add_argument("--on-gpu", action="store_const", const=None, dest="gpu", help="on this machine's GPU")
    parser.add_argument("--seconds", type=float, default=120, help="time for a test, start of its process included")
    parser.add_argument("--together", type=int, default=24, metavar="N", help="tests in a process")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes at a time")
    parser.add_argument("--verbose", action="store_true", help="say each outcome, and the whole text of what differs")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table between the two comments of this file")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(str(options.folder), options.file[0], json.load(sys.stdin), options.work)
        return 0
    ways = [way for way in SERVED if not options.way or way.name in options.way]
    scratch = Path(tempfile.mkdtemp(prefix="pytorch-tests-"))
    tests = Tests(options.folder.resolve(), scratch, options.gpu, options.seconds, options.verbose)
    results: dict[str, dict[str, dict[str, Outcome]]] = {}
    todo: queue.SimpleQueue[tuple[str, list[str]]] = queue.SimpleQueue()
    for file in options.file or FILES:
        names = [name for name in tests.names(file) if not options.k or re.search(options.k, name)]
        results[file] = {way.name: {} for way in [NATIVE, RECORDED, *ways]}
        for way in results[file].values():
            way.update(dict.fromkeys(names, Outcome("not run")))
        together = 1 if file == "test_cuda_trace" else options.together  # each of its tests wants a process of its own
        for start in range(0, len(names), together):
            todo.put((file, names[start : start + together]))

    def help_out() -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                file, names = todo.get_nowait()
                for way, outcomes in compare(tests, file, names, ways).items():
                    results[file][way].update(outcomes)

    helpers = [threading.Thread(target=help_out) for _ in range(options.jobs)]
    for one in helpers:
        one.start()
    for one in helpers:
        one.join()
    text = table(results, ways)
    print(text, end="")
    if options.verbose:
        for file, found in results.items():
            for way in ways:
                for name, one in found[way.name].items():
                    if one.word != found[NATIVE.name][name].word:
                        print(f"\n==== {file} {name}, {way.name}: {one.word}\n{one.text}", file=sys.stderr)
    if options.write:
        before, _, rest = options.write.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        options.write.write_text(f"{before}{BEGIN}{text}{END}{after}")
    shutil.rmtree(scratch, ignore_errors=True)
    worse = [
        name
        for found in results.values()
        for way in ways
        for name, one in found[NATIVE.name].items()
        if one.word == "passed" and found[way.name][name].word != "passed"
    ]
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())
