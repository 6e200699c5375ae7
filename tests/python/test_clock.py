"""A dry run has a clock: what is late comes late, and the same program has the same times."""

from __future__ import annotations

import json

from runs import recorder, run

MIB = 1 << 20


def said_by(recorded) -> dict:
    (line,) = [line for line in recorded.process.stderr.splitlines() if line.startswith('{"done at once"')]
    return json.loads(line)


def test_work_takes_its_time_and_memory_in_use_comes_back_late(tmp_path):
    record = recorder(tmp_path)
    first = record("clock.py")
    said = said_by(first)
    assert not said["done at once"] and said["questions"] > 10, "the host is ahead"
    assert 2.2 < said["product ms"] < 3.6, "1.1 peta operations of 989 a second, once a kernel is chosen"
    assert 4.2 < said["copy ms"] < 8, "256 MiB over a link of 64 GB/s"
    assert 0.8 < said["chosen ms"] < 1.4, "a kernel is chosen for new sizes, once"
    assert 2.5 < said["unaligned"] < 3.5, "rows that are no whole pieces of 16 bytes"
    assert 9 < said["drawn ms"] < 12, "the host draws 200 million numbers a second"
    assert said["while it is copied"] == 256 * MIB and said["once it is done"] == 0
    # Ten products and one update a step; the host waits for none of it.
    replayed = json.loads(run("simulate", first.directory / "rank0_dev0.trace", "--json").stdout)
    assert replayed["clock"] == "modelled"
    for result in replayed["results"]:
        assert 12 < result["step_ms"] < 25, result["allocator"]

    second = record("clock.py", MALLOC_PERTURB_="85")  # whatever the host does with its memory
    times = [[(entry["action"], entry["time_us"]) for entry in one.entries()] for one in (first, second)]
    assert times[0] == times[1]

    real = record("clock.py", STALLOC_DRYRUN_CLOCK="real")
    assert 1.2 < said_by(real)["product ms"], "the device's time is modelled all the same"
