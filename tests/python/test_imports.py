"""The recorder is called when a module has been imported, and is in nobody's way."""

import importlib
import sys

import pytest

from stalloc._common import imports

pytestmark = pytest.mark.usefixtures("cold")


@pytest.fixture
def modules(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("hooked_one", "hooked_two"):
        (tmp_path / f"{name}.py").write_text("value = 1")
    yield
    for name in ("hooked_one", "hooked_two"):
        sys.modules.pop(name, None)


def test_a_callback_runs_after_the_module_and_at_once_if_it_is_there_already(modules):
    seen = []
    imports.after("hooked_one", lambda module: seen.append(module.value))
    one = importlib.import_module("hooked_one")
    assert seen == [1]
    assert type(one.__spec__.loader).__name__ == "SourceFileLoader" == type(one.__loader__).__name__
    imports.after("hooked_one", lambda module: seen.append(2))
    assert seen == [1, 2]


def test_a_callback_can_wait_for_another_module(modules):
    seen = []
    imports.after("hooked_one", lambda _: imports.after("hooked_two", lambda _: seen.append("two")))
    importlib.import_module("hooked_one")
    importlib.import_module("hooked_two")
    assert seen == ["two"]
    assert sys.meta_path.count(imports._finder) == 1


def test_a_module_that_does_not_exist_stays_missing():
    imports.after("hooked_nowhere", lambda _: None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("hooked_nowhere")
