"""The device that a program sees."""
import os
import subprocess

import pytest

GIB = 1 << 30


@pytest.mark.parametrize(
    ("gpu", "name", "capability", "multiprocessors", "gibibytes"),
    [
        ("h100-80gb", "NVIDIA H100 80GB HBM3", [9, 0], 132, 78),
        ("rtx4090", "NVIDIA GeForce RTX 4090", [8, 9], 128, 23),
    ],
)
def test_a_preset_has_its_properties_and_runs_out_at_its_capacity(answer, gpu, name, capability, multiprocessors, gibibytes):
    seen = answer("device", gpu=gpu)
    assert (seen["name"], seen["capability"], seen["multiprocessors"]) == (name, capability, multiprocessors)
    assert seen["total"] == seen["total_by_info"] > seen["free"]
    assert seen["held"] == gibibytes
    assert "CUDA out of memory. Tried to allocate 1024.00 MiB" in seen["message"]
    assert seen["after"] == seen["free"]
    assert seen["full"] < 2 << 20


def test_several_devices_of_a_capacity_of_ones_own(answer):
    seen = answer("device", gpu="a100-80gb", devices=8, total_mib=4096, context_mib=0)
    assert seen["count"] == seen["nvml"] == 8
    assert seen["free"] == seen["total"] == 4 * GIB
    assert (seen["held"], seen["full"]) == (4, 0)
    assert seen["names"] == ["NVIDIA A100-SXM4-80GB"] * 8
    assert seen["other"] == "cuda:0"


@pytest.mark.parametrize(
    ("variables", "complaint"),
    [
        ({"gpu": "h1000"}, 'unknown GPU "h1000"; known: rtx3080, '),
        ({"devices": "0"}, "1 to 16 devices"),
        ({"total_mib": "lots"}, "not a whole number"),
    ],
)
def test_a_value_that_makes_no_sense_ends_the_process_with_one_line(run, variables, complaint):
    done = run("device", check=False, **variables)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_program_without_cuda_runs_as_ever(links):
    done = subprocess.run(["sh", "-c", "echo $((6 * 7))"], env=os.environ | {"LD_PRELOAD": str(links / "libcuda.so.1")}, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("42\n", "", 0)


def test_what_is_read_back_is_exact_or_zero_and_told(answer):
    seen = answer("reads")
    results, told = seen["results"], seen["told"]
    assert results["copied"] == [1, 2, 3]
    assert results["filled"] == [0, 0]
    assert results["part"] == [40, 41, 42]
    assert results["moved"] == [4, 5]
    assert results["computed"] == 0
    assert results["answered"] == 2.5
    assert results["nan"] is False
    assert results["printed"] == "tensor([0., 0., 0., 0.], device='cuda:0')"
    assert results["into_pinned"] == 0
    by_line = {read["line"].split('"')[1]: read for read in told if '"' in read["line"]}
    assert all(by_line[known]["flags"] == 1 for known in ("copied", "filled", "part", "moved"))
    assert not by_line["computed"]["flags"] & 1
    assert by_line["computed"]["size"] == 4
    assert by_line["into_pinned"]["flags"] == 2
    reads = seen["summary"]["host_reads"]
    assert reads["known"] == 4
    assert reads["answered"] == 1
    assert reads["known"] + reads["answered"] + reads["zero"] == len(told) + 1
    assert seen["summary"]["gpu"] == "h100-80gb"
    assert seen["length"]
    assert seen["short"][0] == "{"
    assert seen["short"][2:] == "\0x", "no more than was allowed"


@pytest.mark.parametrize("gpu", ["a100-40gb", "l40s", "rtx4090", "h200-141gb", "b200"])
def test_kernels_that_are_chosen_by_compute_capability_run_on_every_preset(answer, gpu):
    ran = answer("chosen_kernels", gpu=gpu)
    assert ran["sort"] == [100_000] and len(ran) == 6


def test_a_context_that_is_popped_gives_way_to_the_one_before_it(answer):
    assert answer("contexts", devices=2) == [0, 1] + [1, 0] + [0, 1] + [1, 0] + [0, 0, 1]
