"""Who may import whom: the layers of the package, read from the source of every module."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "plmctl"
TESTS = Path(__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
MODULES = {
    ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for file in FILES
}
ORDER = (  # the rooms of the package, lowest first: each may import those before it
    *(
        "core",
        "storage",
        "text",
        "knowledge",
        "noise",
        "data",
        "cleaning",
        "attention",
        "nn",
        "models",
    ),
    *("heads", "generation", "runtime"),
    *("objectives", "graph", "vectors", "tasks", "distill", "attack"),
    *("training",),
    *("interop", "config", "inputs", "artifacts", "analysis", "use", "runs", "probes", "datasets"),
    "serve",
    *("report", "jobs", "study", "search", "chain", "compress", "cli", "commands", "api"),
)
PARTS = ORDER[: ORDER.index("training")]  # built from configs, of which they know nothing
NUMPY_ONLY = ("text", "knowledge", "noise", "data", "cleaning", "core", "storage", "cli")
FREE_OF_DATA = ("attention", "nn", "models", "heads", "generation", "objectives")
# what an import inside a function may name: libraries that are heavy or may be missing, so that
# `plmctl --help` is fast and a command needs only what it uses
HEAVY = frozenset({"torch", "hydra", "omegaconf", "rich", "yaml", "safetensors", "pyarrow"})
HEAVY |= {"sacrebleu", "numpy", "multiprocessing", "pandas", "submitit", "sklearn"}
# and modules of ours that bring such a library into commands and pages that work without it
LATE = {
    # torch's engine takes as long to import as torch, and few runs need it
    "training/strategy/choose.py": {"plmctl.training.strategy.sharded"},
    "runs/dividing.py": {"plmctl.nn.team"},
    "__main__.py": {"plmctl.cli.app"},
    "api/runs.py": {"plmctl.artifacts.loading", "plmctl.api.loading"},
    "chain/demo.py": {"plmctl.data.baseline", "plmctl.data.shards", "plmctl.text"},
    "chain/listing.py": {"plmctl.study.measured"},  # loads torch
    "jobs/command.py": {"plmctl.runs.resume", "plmctl.training.checkpoint"},
    "jobs/sweep.py": {"plmctl.jobs.cluster", "plmctl.jobs.on_cluster"},
    "jobs/sweep_job.py": {"plmctl.runs.parents", "plmctl.runs.side_tasks"},
    "report/card.py": {"plmctl.report.decided"},
    "report/folds.py": {"plmctl.report.decided", "plmctl.tasks.intervals"},
    "report/wishes.py": {"plmctl.analysis.probing"},
    "report/write.py": {"plmctl.artifacts.assemble"},
    "report/subject.py": {"plmctl.artifacts.loading", "plmctl.report.decided"},
    "config/compose.py": {"plmctl.config.speed"},
    "config/composer.py": {"plmctl.config.part_files"},
    "config/implied_task.py": {"plmctl.tasks.linear_model"},
    "runs/deciding.py": {"plmctl.runs.parents"},
    "runs/distill_words.py": {"plmctl.runs.resume"},
    "artifacts/loading.py": {"plmctl.artifacts.shrinking"},
    "storage/reading.py": {"plmctl.storage.packed"},
}


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Every statement inside of a node; expressions, most of a tree, import nothing."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, block, ()):
            yield inner
            yield from statements(inner)


@cache
def imports(file: Path, *, at_run_time: bool = True) -> set[str]:
    """Dotted names that a module imports; those for type checkers only are left out."""
    tree = parsed(file)
    typing_only = {
        id(node)
        for block in statements(tree)
        if isinstance(block, ast.If)
        and isinstance(block.test, ast.Name)
        and block.test.id == "TYPE_CHECKING"
        for node in statements(block)
    }
    found: set[str] = set()
    for node in statements(tree):
        if at_run_time and id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{file}: imports are absolute"
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner & MODULES if inner & MODULES else {node.module}
    return found


def room(name: str) -> str:
    """`nn` of plmctl.nn.cells.base; empty for plmctl itself."""
    return f"{name}.".split(".")[1]


def module(file: Path) -> str:
    name = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
    return name.removesuffix(".__init__")


def ours(file: Path, **how: bool) -> set[str]:
    """The rooms that a module imports, but for its own."""
    found = {room(name) for name in imports(file, **how) if name.startswith("plmctl.")}
    return found - {room(module(file))}


def name(file: Path) -> str:
    return str(file.relative_to(PACKAGE))


def files_of(wanted: str) -> list[Path]:
    return [file for file in FILES if room(module(file)) == wanted]


def test_every_folder_is_a_room() -> None:
    assert {room(module(file)) for file in FILES} - {"", "__main__"} <= set(ORDER)


def test_folders_of_tests_are_rooms() -> None:
    folders = {file.parent.relative_to(TESTS).parts[:1] for file in TESTS.rglob("test_*.py")}
    assert {folder for (folder,) in folders - {()}} <= set(ORDER)


@pytest.mark.parametrize("upper", ORDER)
def test_a_room_imports_only_lower_ones(upper: str) -> None:
    """Imports for type checkers and those inside of functions count like all others."""
    higher = set(ORDER[ORDER.index(upper) :])
    found = {name(file): ours(file, at_run_time=False) & higher for file in files_of(upper)}
    assert {file: rooms for file, rooms in found.items() if rooms} == {}


def test_only_config_and_runs_take_a_spec() -> None:
    found = set()
    for file in FILES:
        if room(module(file)) in ("config", "runs", *PARTS):  # a word of text/ is a spec, too
            continue
        for node in statements(parsed(file)):
            if isinstance(node, ast.FunctionDef):
                given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                if {argument.arg for argument in given} & {"spec", "cfg"}:
                    found.add(name(file))
    assert found == set()


def test_config_alone_finds_the_class_of_a_node() -> None:
    """Other rooms ask `config.build.class_of`, and know nothing of the keys of a node."""
    finding = re.compile(r"locate\([^\n]*_target_")
    higher = ORDER[ORDER.index("config") + 1 :]
    found = {
        name(file)
        for room in higher
        for file in files_of(room)
        if finding.search(file.read_text(encoding="utf-8"))
    }
    assert found == set()


def test_no_modules_import_each_other_in_a_circle() -> None:
    names = {module(file): file for file in FILES}
    assert not circles(
        {
            name: {each for each in imports(file) if each in names and each != name}
            for name, file in names.items()
        }
    )


@pytest.mark.parametrize("room", ORDER)
def test_no_packages_of_a_room_import_each_other_in_a_circle(room: str) -> None:
    """One level deeper: a package of a room counts as one, beside the modules of the room."""

    def inner(name: str) -> str:
        return ".".join(name.split(".")[:3])

    graph: dict[str, set[str]] = {}
    for file in files_of(room):
        name = inner(module(file))
        found = {inner(each) for each in imports(file) if each.startswith(f"plmctl.{room}.")}
        graph.setdefault(name, set()).update(found - {name})
    assert not circles(graph)


def circles(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """The part of a graph that stands on a circle, or leads from one to another."""
    while leaves := {name for name, found in graph.items() if not found & graph.keys()}:
        graph = {name: found for name, found in graph.items() if name not in leaves}
    # what is left is on a circle, or leads into one
    while ends := graph.keys() - {each for found in graph.values() for each in found}:
        graph = {name: found for name, found in graph.items() if name not in ends}
    return graph


@pytest.mark.parametrize("room", ORDER)
def test_an_import_inside_a_function_spares_time(room: str) -> None:
    found = {name(file): needless_late_imports(file) for file in files_of(room)}
    assert {file: names for file, names in found.items() if names} == {}


def needless_late_imports(file: Path) -> set[str]:
    """What functions of a file import that is neither heavy nor named by LATE."""
    tree = parsed(file)
    inside = {
        id(node)
        for function in statements(tree)
        if isinstance(function, ast.FunctionDef)
        for node in statements(function)
    }
    found = {
        node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in statements(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom)) and id(node) in inside
    }
    # a command imports what it does when it does it: `plmctl --help` is fast
    late = {"plmctl."} if room(module(file)) in ("cli", "commands") else LATE.get(name(file), set())
    ours = {each for each in found if each.startswith("plmctl")}
    needless = {each for each in found - ours if each.split(".")[0] not in HEAVY}
    return needless | {each for each in ours if not each.startswith(tuple(late) or ("-",))}


# who knows the libraries of settings: Hydra with its files, and OmegaConf with its references
KNOWN_TO = {
    "hydra": {"config/composer.py", "config/part_files.py", "config/word_grammar.py"},
    "omegaconf": {"config/composer.py", "config/references.py", "config/word_grammar.py"},
}


@pytest.mark.parametrize(("library", "files"), KNOWN_TO.items())
def test_one_place_knows_hydra(library: str, files: set[str]) -> None:
    """Imports for type checkers count like all others; names in texts are found, too."""
    importing = {
        name(file)
        for file in FILES
        if library in {each.split(".")[0] for each in imports(file, at_run_time=False)}
    }
    assert importing == files
    naming = {name(file) for file in FILES if "OmegaConf" in file.read_text(encoding="utf-8")}
    assert naming <= KNOWN_TO["omegaconf"]


def test_of_the_parts_training_knows_only_which_rows_are_real() -> None:
    found = {
        name
        for file in FILES
        if room(module(file)) == "training"
        for name in imports(file)
        if name.startswith("plmctl.nn")
    }
    assert found == {"plmctl.nn.tables"}


@pytest.mark.parametrize("room", PARTS)
def test_parts_know_nothing_of_configs(room: str) -> None:
    found = {each.split(".")[0] for file in files_of(room) for each in imports(file)}
    assert not found & {"hydra", "omegaconf", "typer"}


@pytest.mark.parametrize("room", FREE_OF_DATA)
def test_parts_of_a_model_stand_on_no_loader(room: str) -> None:
    found = {name(file) for file in files_of(room) if "data" in ours(file, at_run_time=False)}
    assert not found


def imports_on_loading(file: Path) -> set[str]:
    """Dotted names that a file imports outside of functions and conditions."""
    top = [node for node in parsed(file).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {alias.name for node in top if isinstance(node, ast.Import) for alias in node.names}
    return names | {str(node.module) for node in top if isinstance(node, ast.ImportFrom)}


@pytest.mark.parametrize("room", NUMPY_ONLY)
def test_no_torch_below_the_models(room: str) -> None:
    found = {
        name(file)
        for file in files_of(room)
        if any(each.split(".")[0] == "torch" for each in imports_on_loading(file))
    }
    assert not found


def test_tests_share_modules_of_the_package_tests() -> None:
    """Under its bare name a module of another folder is found only if that folder was collected."""
    bare = {file.stem for file in TESTS.rglob("*.py")} - {"__init__"}
    # parsing all tests takes seconds: a line with such a name is looked for first
    names = "|".join(sorted(bare))
    line = re.compile(rf"^(?:from|import)(?:.*,)?\s+(?:{names})\b", re.MULTILINE)
    assert line.search("import os\nimport test_imports")
    suspects = [file for file in TESTS.rglob("*.py") if line.search(file.read_text("utf-8"))]
    found = {str(file.relative_to(TESTS)): imports_on_loading(file) & bare for file in suspects}
    assert {file: names for file, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "module",
    [
        "plmctl",
        "plmctl.cli.app",
        "plmctl.config.compose",
        "plmctl.jobs.sweep",
        "plmctl.runs.resume",
    ],
)
def test_importing_it_loads_no_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules or 'hydra' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_no_one_asks_which_class_a_task_has() -> None:
    """A task states what tools need; what only evaluates is a probe."""
    asking = re.compile(r"isinstance\((?:task|self\.task), (?!dict)")
    found = {name(file) for file in FILES if asking.search(file.read_text("utf-8"))}
    assert {file for file in found if not file.startswith("tasks/")} == set()


def test_lines_are_short() -> None:
    root = TESTS.parent
    folders = ("plmctl", "tests", "docs", "benchmarks", "examples", "conf", "recipes")
    files = [file for name in folders for file in (root / name).rglob("*.*")]
    long = [
        f"{file.relative_to(root)}:{number}"
        for file in files
        if file.suffix in (".py", ".yaml")
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > 100
    ]
    assert not long


def test_functions_are_short() -> None:
    """At most 60 lines: a longer one does several things, of which each has a name."""
    long = {
        f"{name(file)}: {node.name}"
        for file in FILES
        for node in statements(parsed(file))
        if isinstance(node, ast.FunctionDef)
        and (node.end_lineno or node.lineno) - node.lineno >= 60
    }
    assert long == set()


def test_no_two_public_classes_have_one_name() -> None:
    names = Counter(
        node.name
        for file in FILES
        for node in parsed(file).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, times in names.items() if times > 1] == []
