"""Fixtures that record programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import recorder


@pytest.fixture
def record(tmp_path: Path):
    """Records programs."""
    return recorder(tmp_path)


@pytest.fixture(scope="module")
def record_once(tmp_path_factory: pytest.TempPathFactory):
    """Records programs for several tests."""
    return recorder(tmp_path_factory.mktemp("recorded"))


@pytest.fixture(scope="session")
def planned(tmp_path_factory: pytest.TempPathFactory):
    """Traces of the small transformer, for every test; `stalloc run` plans them."""
    return recorder(tmp_path_factory.mktemp("planned"))("gpt.py", "4").directory
