"""What a stranger's script may call: `programs/features.py` says what, and runs in one process, for imports take the longest."""
import ast
import pathlib

import pytest

PROGRAM = pathlib.Path(__file__).parent / "programs" / "features.py"


def names(kind):
    """The functions of the program that are decorated with `kind`."""
    functions = [node for node in ast.parse(PROGRAM.read_text()).body if isinstance(node, ast.FunctionDef)]
    return [function.name for function in functions if any(getattr(decorator, "id", "") == kind for decorator in function.decorator_list)]


@pytest.fixture(scope="module")
def plain(answer):
    return answer("features", "plain")


@pytest.mark.parametrize("name", names("case"))
def test_works(plain, name):
    assert name in plain["ran"]
    assert name not in plain["failures"], plain["failures"][name]


def test_compilers_work(answer, tmp_path):
    # Starting workers would take longer than the compiling.
    done = answer("features", "compiled", TORCHINDUCTOR_COMPILE_THREADS=1, TORCHINDUCTOR_CACHE_DIR=tmp_path / "inductor", TRITON_CACHE_DIR=tmp_path / "triton")
    assert done["ran"] == names("compiled")
    assert not done["failures"], "\n".join(done["failures"].values())
