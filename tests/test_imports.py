"""Who may import whom: the layers of the package, read from the source of every module."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "plmctl"
TESTS = Path(__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
BASE = {"core", "storage"}
# each may import those before it
MODEL = ["attention", "nn", "models", "heads", "generation", "objectives", "tasks"]
MAY: dict[str, set[str]] = {
    "core": set(),
    "storage": {"core"},
    "text": BASE,
    "noise": BASE | {"text"},
    "data": BASE | {"text", "noise"},
    **{layer: BASE | set(MODEL[:place]) for place, layer in enumerate(MODEL)},
    "training": BASE | {"nn", "models", "objectives", "data"},
}
MAY["objectives"] |= {"text"}  # which ids are special, and what stands around a segment
MAY["generation"] |= {"text"}
MAY["tasks"] |= {"text", "data", "noise"}
MAY["distill"] = BASE | {*MODEL, "text", "data"}
NUMPY_ONLY = ("text", "noise", "data", "core", "storage", "cli")
TORCH_IN_DATA = {"data/loader.py"}  # collate makes the batch


def imports(file: Path, *, at_run_time: bool = True) -> set[str]:
    """Dotted names that a module imports; those for type checkers only are left out."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If)
        and isinstance(block.test, ast.Name)
        and block.test.id == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if at_run_time and id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{file}: imports are absolute"
            found |= (
                {f"{node.module}.{alias.name}" for alias in node.names}
                if node.module == "plmctl"
                else {node.module}
            )
    return found


def layer(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def ours(file: Path, **how: bool) -> set[str]:
    return {name.split(".")[1] for name in imports(file, **how) if name.startswith("plmctl.")} - {
        layer(file)
    }


def name(file: Path) -> str:
    return str(file.relative_to(PACKAGE))


@pytest.mark.parametrize("file", [file for file in FILES if layer(file) in MAY], ids=name)
def test_a_layer_imports_only_lower_ones(file: Path) -> None:
    assert ours(file, at_run_time=layer(file) != "training") <= MAY[layer(file)] | {layer(file)}


def test_of_the_parts_training_knows_only_which_rows_are_real() -> None:
    found = {
        name
        for file in FILES
        if layer(file) == "training"
        for name in imports(file)
        if name.startswith("plmctl.nn")
    }
    assert found == {"plmctl.nn.tables"}


@pytest.mark.parametrize("file", FILES, ids=name)
def test_nobody_imports_the_command_line(file: Path) -> None:
    assert "cli" not in ours(file) or name(file) == "__main__.py"


@pytest.mark.parametrize(
    "file",
    [file for file in FILES if layer(file) in (*MODEL, "noise", "data", "text", "core", "storage")],
    ids=name,
)
def test_parts_know_nothing_of_configs(file: Path) -> None:
    assert not {name.split(".")[0] for name in imports(file)} & {"hydra", "omegaconf", "typer"}
    assert not ours(file) & {"run", "commands", "cli"}


@pytest.mark.parametrize("file", [file for file in FILES if layer(file) in NUMPY_ONLY], ids=name)
def test_no_torch_below_the_models(file: Path) -> None:
    if name(file) in TORCH_IN_DATA:
        return
    tree = ast.parse(file.read_text(encoding="utf-8"))
    top = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {alias.name for node in top if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in top if isinstance(node, ast.ImportFrom)}
    assert not any(name.split(".")[0] == "torch" for name in names)


@pytest.mark.parametrize(
    "file", sorted(TESTS.rglob("*.py")), ids=lambda file: str(file.relative_to(TESTS))
)
def test_tests_share_files_that_any_selection_finds(file: Path) -> None:
    """Beside them, under a name that no other folder has: `conftest` is whichever pytest read
    last.
    """
    body = ast.parse(file.read_text(encoding="utf-8")).body
    names = {alias.name for node in body if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in body if isinstance(node, ast.ImportFrom)}
    assert "conftest" not in names
    assert {other.parent for name in names for other in TESTS.rglob(f"{name}.py")} <= {file.parent}


@pytest.mark.parametrize(
    "module",
    ["plmctl", "plmctl.cli.app", "plmctl.run.compose", "plmctl.jobs.sweep", "plmctl.run.resume"],
)
def test_importing_it_loads_no_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules or 'hydra' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_two_test_files_have_one_name() -> None:
    """pytest imports each by its name alone: the second would be taken for the first."""
    names = Counter(file.name for file in TESTS.rglob("*.py") if file.name != "conftest.py")
    assert [name for name, times in names.items() if times > 1] == []
