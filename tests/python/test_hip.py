"""On ROCm the shim is what PyTorch's converter makes of it, and it compiles with HIP's headers. Nothing of it is run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch.utils.hipify import hipify_python

from stalloc._serve import shim



def has_headers() -> bool:
    """Whether there are headers of HIP that this PyTorch's own headers compile with: Debian 12's, of 5.2.3, are too old."""
    try:
        (folder,) = shim._hip_headers() or [Path("/usr/include")]
    except shim.ShimError:
        return False
    return "hipUserObject_t" in (folder / "hip/hip_runtime_api.h").read_text()



def pytorchs_headers(folder: Path) -> Path:
    """The headers that ROCm's PyTorch has in the place of CUDA's, made as it makes them."""
    include = Path(torch.__file__).parent / "include"
    for part in ("c10/cuda", "torch/csrc/cuda", "ATen/cuda"):
        shutil.copytree(include / part, folder / part)
    hipify_python.hipify(project_directory=str(folder), output_directory=str(folder), includes=["*"], show_detailed=False)
    shutil.rmtree(folder / "c10/cuda")
    shutil.rmtree(folder / "ATen/cuda")
    return folder


@pytest.fixture
def rocm(tmp_path, monkeypatch):
    """This PyTorch as if it were ROCm's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(torch.version, "hip", "6.3")
    return tmp_path


def test_the_sources_name_nothing_of_cudas_headers_or_calls(rocm):
    source = shim._for_platform(shim.SOURCES / "front.cpp", rocm)
    texts = [source.read_text(), *(file.read_text() for file in source.parent.glob("*_hip.h"))]
    assert len(texts) > 10
    for text in texts:
        assert "c10/cuda/" not in text and "cudaStream_t" not in text and "cudaSuccess" not in text


@pytest.mark.skipif(not has_headers(), reason="HIP's headers are not installed (ROCM_PATH), or too old for this PyTorch")
def test_the_shim_compiles_with_hips_headers(rocm, monkeypatch):
    monkeypatch.setenv("CPATH", str(pytorchs_headers(rocm / "pytorch")))  # before those of this PyTorch
    monkeypatch.setattr(shim, "_libraries", lambda gpu: [])  # ROCm's are not here
    library = shim.build("front")
    symbols = subprocess.run(["nm", "-D", "--undefined-only", library], capture_output=True, text=True, check=True).stdout
    assert "hipIpcGetMemHandle" in symbols and "cudaIpcGetMemHandle" not in symbols
