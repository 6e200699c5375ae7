"""The package is made of parts, each of one concern, and imports go one way."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "python" / "stalloc"

#: What each part may import, itself aside. `_enable` sets a process up, so it alone knows serving and recording.
MAY_IMPORT = {
    "results": set(),
    "_native": {"results"},
    "_common": {"_native"},
    "_steps": {"_common", "_native"},
    "_frameworks": {"_common", "_native"},
    "_dry_run": {"_common", "_frameworks", "_native"},
    "_record": {"_common", "_steps", "_dry_run", "_native"},
    "_serve": {"_common", "_steps", "_dry_run", "_native", "results"},
    "_out_of_memory": {"_common", "_native", "_report"},
    "_enable": {"_common", "_levers", "_out_of_memory", "_record", "_serve", "results"},
    "integrations": {"_common", "_enable", "_steps"},
    "utils": {"_steps"},
    "_sleep": {"_native", "_serve"},
    "_files": {"_common", "_native"},
    "_fit": {"results"},
    "_read": {"_native"},
    "_report": set(),
    "_notebook": {"_report"},
    "_levers": {"_common", "_native", "_steps"},
    "_bootstrap": {"_enable", "_levers", "_record"},
    "__main__": set(),
}


def modules() -> dict[str, ast.Module]:
    """Every module of the package, by its name."""
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = ["stalloc", *file.relative_to(PACKAGE).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(file.read_text())
    return found


def imports(module: ast.Module, names: set[str]) -> set[str]:
    """The package's own modules that ``module`` imports, also inside functions."""
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the whole path"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in names or whole == "stalloc._native" else str(node.module))
    return {name for name in found if name.startswith("stalloc")}


def part(name: str) -> str:
    return [*name.split("."), ""][1]


def test_no_part_imports_what_it_must_not_know():
    names = modules()
    assert {part(name) for name in names} - {""} <= MAY_IMPORT.keys(), "every part is in the table"
    wrong = [
        f"{name} imports {imported}"
        for name, module in names.items()
        for imported in imports(module, set(names))
        if name != "stalloc" and part(imported) not in MAY_IMPORT[part(name)] | {part(name)}
    ]
    assert not wrong


def test_no_modules_import_each_other_in_a_circle():
    names = modules()
    waiting = {name: imports(module, set(names)) & names.keys() - {name} for name, module in names.items()}
    while free := [name for name, needs in waiting.items() if not needs & waiting.keys()]:
        for name in free:
            del waiting[name]
    assert not waiting
