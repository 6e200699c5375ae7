"""The installed cuDNN says which workspaces convolutions take; without it they take none."""
import os
import pathlib
import shutil

import pytest


@pytest.fixture(scope="module")
def said(answer, tmp_path_factory):
    """What the installed library says for an H100, kept nowhere."""
    return answer("convolution", gpu="h100-80gb", XDG_CACHE_HOME=tmp_path_factory.mktemp("cache"))


def test_the_installed_library_names_workspaces(said):
    assert said["cudnn"]["version"] >= 90_800 and said["cudnn"]["answered"] > 0, said["cudnn"]
    assert said["cudnn"]["imitated"] == 0, said["cudnn"]["why"]
    # Half a tensor of the image is 98 MiB; tensor cores want image and result in another order.
    assert max(said["workspaces"]) > 98, said["workspaces"]


def test_what_it_said_is_kept_and_the_card_decides(answer, tmp_path):
    first = answer("convolution", gpu="t4", XDG_CACHE_HOME=tmp_path)
    assert list(tmp_path.glob("stalloc/cudnn/cudnn-*")), "kept at once, since a program may end in any way"
    again = answer("convolution", gpu="t4", XDG_CACHE_HOME=tmp_path)
    assert first["workspaces"] == again["workspaces"] and max(first["workspaces"]) < 98, "a T4 has other engines than an H100"
    assert again["cudnn"] == first["cudnn"]


def test_a_library_that_dies_is_imitated_and_the_job_goes_on(answer, links, tmp_path):
    for name in os.listdir(links):
        (tmp_path / name).symlink_to(tmp_path / "libstalloc_dryrun.so")
    shutil.copy(pathlib.Path(links / "libcuda.so.1").resolve(), tmp_path / "libstalloc_dryrun.so")
    dying = tmp_path / "stalloc"
    # Its child says that it has loaded the library, and ends at the first question.
    dying.write_text("#!/bin/sh\nexec 3<&0\n(head -c 20 /dev/zero; head -c 1 > /dev/null) <&3 >&3 &\n")
    dying.chmod(0o755)
    preload = {"LD_PRELOAD": tmp_path / "libcuda.so.1", "LD_LIBRARY_PATH": tmp_path, "XDG_CACHE_HOME": tmp_path}
    done = answer("convolution", gpu="h100-80gb", **preload)
    assert done["cudnn"]["imitated"] > 0 and "did not answer" in done["cudnn"]["why"], done["cudnn"]
    assert max(done["workspaces"]) < 98


def test_it_is_not_asked_where_a_switch_says_so(answer):
    done = answer("convolution", gpu="h100-80gb", cudnn="imitated")
    assert done["cudnn"]["answered"] == 0 and max(done["workspaces"]) < 98, done
