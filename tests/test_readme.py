"""README.md, its neighbours and the pages of docs/ tell the truth: their files exist, their command
lines compose, their tables are current.
"""

import dataclasses
import functools
import importlib
import importlib.util
import re
import shlex
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner

from plmctl.attention.kernels.base import Kernel
from plmctl.attention.patterns.base import Pattern
from plmctl.chain.self_training import sort_words as sort_rounds
from plmctl.cli import app as cli
from plmctl.cli.verb import read_bare, sort_words
from plmctl.commands.search import SearchCommand
from plmctl.config import compose as config
from plmctl.config.command import all_commands, list_commands
from plmctl.config.headers import header
from plmctl.config.launcher import take_launcher
from plmctl.config.schema import SAVED
from plmctl.config.spec import Provenance
from plmctl.core.errors import DataError, PlmctlError, UsageError
from plmctl.data.formats.base import Format
from plmctl.distill.base import Signal
from plmctl.heads.base import Head
from plmctl.nn.cells.base import Cell
from plmctl.nn.positions import Position
from plmctl.noise.base import Noise
from plmctl.objectives.base import Objective
from plmctl.runs.distill_words import as_training
from plmctl.study.study import Metric, Published

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = {
    file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8")
    for file in [
        *sorted(ROOT.glob("*.md")),
        ROOT / "examples/README.md",
        *sorted(DOCS.rglob("*.md")),
        ROOT / "recipes/RESULTS.md",
    ]
}
LOGS = "docs/results/"  # with commands as they were
README = PAGES["README.md"]
EXAMPLES = {"focal_mlm"}  # files that a reader may write
NAMES = set(list_commands()) | {name.partition(" ")[0] for name in list_commands()}


def commands(page: str) -> Iterator[str]:
    """The command lines of a page: lines of its shell blocks, and those inside of sentences."""
    for block in re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").replace("$run", "tnews").splitlines():
            line = line.strip()
            if re.match(r"plmctl \w", line):
                yield line.split("# ")[0].strip()
    for line in re.findall(r"`(plmctl [^`]*)`", prose(page)):
        words = " ".join(line.split())
        if words.removeprefix("plmctl ") in NAMES:
            continue  # a command, not a line that one types
        if not re.search(r"<|\.\.\.| --version", words):
            yield words


def prose(page: str) -> str:
    return re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)


COMMANDS = sorted(
    {line for page, text in PAGES.items() if not page.startswith(LOGS) for line in commands(text)}
)
LINKS = [
    (page, target)
    for page, text in PAGES.items()
    for target in sorted(set(re.findall(r"\]\(([^)]+)\)", prose(text))))
]


STUDIES = sorted((ROOT / "examples/study").glob("*.yaml"))


@functools.cache
def find_group() -> typer.core.TyperGroup:
    """The program with all of its commands, built once."""
    return typer.main.get_command(cli.make_app())


def assert_composes(line: str, *extra: str) -> None:
    """Parse `line` as the program does and compose its config; nothing is read or trained."""
    _, verb, *words = shlex.split(line)
    program = find_group()
    if verb.startswith("--"):
        known = {"--help", *(option for param in program.params for option in param.opts)}
        assert verb in known
        return
    plugins = [after for word, after in pairwise(words) if word == "--plugin"]
    command = cli.KnownCommands(plugins=plugins)[verb]
    if verb in ("data", "recipes", "bases", "models"):
        command, words = command.commands[(inner := words[0])], words[1:]
        verb = inner if inner in all_commands() else verb  # data augment
    if words == ["--help"]:
        return
    context = command.make_context(verb, [*words, *extra])
    if verb in (
        "average",
        "compare",
        "convert",
        "report",
        "recipes",
        "bases",
        "models",
        "help",
        "docs",
        "env",
    ):
        return
    given = context.params
    words = read_bare(command.callback.kind.about, given.get("words", given.get("settings")) or [])
    if verb == "self-train":
        verb, (_, words) = "finetune", sort_rounds(words)
    recipe, overrides = sort_words(words, resume=given.get("resume", False))
    if given.get("resume"):
        return  # the saved config counts
    recipe = "bert" if verb == "pretrain" and recipe is None else recipe
    asked = Provenance(
        verb,
        recipe,
        tuple(overrides),
        config_dirs=tuple(given.get("config_dir") or ()),
        plugins=tuple(given.get("plugin") or ()),
    )
    asked = SearchCommand.read(asked) if verb == "search" else take_launcher(asked)
    asked = as_training(asked) if verb == "distill" else asked
    made = config.composed(asked, sweep=given.get("multirun", False))
    assert made.spec.provenance.verb == asked.verb


def test_there_are_enough_commands() -> None:
    assert len(COMMANDS) >= 300
    for name in list_commands():
        shown = [page for page, text in PAGES.items() if f"plmctl {name} " in f"{text} "]
        assert any(page.startswith("docs/commands/") for page in shown), name
    for verb in ("pretrain", "finetune", "predict", "generate", "distill", "ablate", "convert"):
        assert any(line.startswith(f"plmctl {verb} ") for line in commands(README)), verb


def test_no_shell_expands_brackets_of_a_setting() -> None:
    """zsh looks for files of the name [a], and bash makes two words of {a,b}."""
    for page, text in PAGES.items():
        for block in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            if page.startswith((LOGS, "recipes/")):
                continue
            bare = re.findall(r"(?<=\s)[\w.@+]+=[\[{]\S*", re.sub(r"(?<=\s)# .*", "", block))
            assert not bare, f"{page}: quote {bare}"


def test_readme_is_short_and_grows_with_no_part() -> None:
    assert README.count("\n") <= 150
    assert "<!--" not in README, "generated tables stand in docs/catalogue"


def test_page_of_agents_is_short_and_knows_the_exit_codes() -> None:
    page = PAGES["AGENTS.md"]
    assert page.count("\n") <= 60
    assert len([*commands(page.partition("## Exit codes")[0])]) == 10
    codes = {kind.exit_code for kind in (PlmctlError, UsageError, DataError)} | {0}
    assert set(re.findall(r"^\| (\d) ", page, re.MULTILINE)) == {str(code) for code in codes}


def test_results_are_a_page_that_one_reads() -> None:
    assert PAGES["recipes/RESULTS.md"].count("\n") <= 120


def test_readme_names_every_command() -> None:
    named = set(re.findall(r"`(?:plmctl )?([\w-]+)`", README))
    assert {name.partition(" ")[0] for name in list_commands()} <= named


@pytest.mark.sampled(2)
@pytest.mark.parametrize("line", COMMANDS)
def test_command_composes(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "./mine.yaml" in line:  # a file that the page says how to make
        monkeypatch.chdir(tmp_path)
        shutil.copy(ROOT / "recipes/bert.yaml", "mine.yaml")
    else:
        monkeypatch.chdir(ROOT)
    for folder in ("parts", "plugin"):
        monkeypatch.syspath_prepend(str(ROOT / "examples" / folder))
    assert_composes(line)


@pytest.mark.parametrize(("page", "target"), LINKS)
def test_linked_file_and_heading_exist(page: str, target: str) -> None:
    if target.startswith("https://"):
        return
    path, _, anchor = target.partition("#")
    file = (ROOT / page).parent / path if path else ROOT / page
    assert file.exists()
    if page.startswith("docs/"):
        assert file.resolve().is_relative_to(DOCS), "the site has no page outside of docs/"
    if anchor:
        headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
        assert anchor in {
            re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings
        }


def test_every_page_is_in_the_navigation() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    shown = re.findall(r"[\w/-]+\.md", str(site["nav"]))
    assert sorted(shown) == sorted(file.relative_to(DOCS).as_posix() for file in DOCS.rglob("*.md"))


def known(mark: str, row: str) -> str:
    """What of a row must be current: newer results of a study are no fault."""
    return row.rpartition("|")[0].rpartition("|")[0] if mark == "studies" else row


def test_tables_of_parts_say_what_the_files_of_the_parts_say() -> None:
    """A part or a recipe that is not in its table yet is no fault: `make docs` adds it."""
    spec = importlib.util.spec_from_file_location("tables", DOCS / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    assert {file.relative_to(ROOT).as_posix() for file in tables.PAGES} <= set(PAGES)
    slots = {folder.name for folder in (ROOT / "conf").iterdir() if folder.is_dir()}
    wanted = {f"parts: {slot}" for slot in slots}
    wanted |= {f"settings: {verb}" for verb in [tables.SHARED, *all_commands(), *SAVED, "launcher"]}
    wanted |= {f"classes: {group}" for group in tables.CLASSES}
    wanted |= {"recipes", "studies", "fields", "families", "published", "commands", "noised"}
    wanted |= {"results", "reached"}
    marks = [mark for page in PAGES.values() for mark, _ in tables.TABLE.findall(page)]
    assert sorted(marks) == sorted(wanted)
    assert tables.INDEX.read_text(encoding="utf-8") == tables.list_site(), "stale: make docs"
    for page in PAGES.values():
        assert tables.FILE.sub(tables.show_file, page) == page, "stale: make docs"
        found = {mark: table.splitlines()[2:] for mark, table in tables.TABLE.findall(page)}
        for mark, rows in found.items():
            wanted_rows = [known(mark, row) for row in tables.rows(mark)]
            assert {known(mark, row) for row in rows} <= set(wanted_rows), "stale: make docs"
        filled = tables.fill(page)
        assert tables.fill(filled) == filled
        assert all(row in filled for mark in found for row in tables.rows(mark))


@pytest.mark.parametrize("page", PAGES)
def test_named_files_of_the_repository_exist(page: str) -> None:
    rooms = "plmctl|conf|recipes|tests|examples|benchmarks|docs"
    for path in re.findall(rf"`((?:{rooms})/[\w/.]*)`", PAGES[page]):
        assert (ROOT / path).exists() or Path(path).stem in EXAMPLES, path


def test_keys_of_a_metric_are_those_of_the_schema() -> None:
    table = (
        PAGES["docs/commands/ablate.md"].partition("| key of a metric |")[2].partition("\n\n")[0]
    )
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == [
        each.name for each in dataclasses.fields(Metric)
    ]
    example = yaml.safe_load(re.findall(r"^\| `published` \| `(.*?)`", table, re.MULTILINE)[0])
    assert list(example) == [each.name for each in dataclasses.fields(Published)]


@pytest.mark.parametrize("file", STUDIES, ids=lambda file: file.stem)
def test_launch_line_of_an_example_study_is_read(file: Path) -> None:
    line = ["plmctl", "ablate", file.relative_to(ROOT).as_posix()]
    assert header(file).command()[:3] == line


def test_every_slot_of_conf_is_in_the_table():
    folders = {folder.name for folder in (ROOT / "conf").iterdir() if folder.is_dir()}
    assert folders == set(
        re.findall(r"`conf/(\w+)` \|$", PAGES["docs/catalogue/index.md"], re.MULTILINE)
    )


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in PAGES.values():
        for target in set(re.findall(r"^make ([\w-]+)|`make ([\w-]+)", page, re.MULTILINE)):
            assert f"\n{''.join(target)}:" in makefile


def test_facts_that_a_part_states_are_attributes_of_its_base() -> None:
    rows = PAGES["docs/extend/index.md"].partition("| slot | its facts |")[2].partition("\n\n")[0]
    stated = {row.split("|")[1].strip(): row.split("|")[2] for row in rows.splitlines()[2:]}
    bases = (Noise, Format, Pattern, Position, Kernel, Cell, Head, Objective, Signal)
    assert len(stated) == len(bases)
    for words, base in zip(stated.values(), bases, strict=True):
        names = re.findall(r"`(\w+)`", words)
        known = {name for each in base.__mro__ for name in (*vars(each), *_annotated(each))}
        facts = getattr(base, "facts", None)  # a class may state each of these as its own, too
        known |= set(_annotated(type(facts)))
        assert names
        assert set(names) <= known, base


def _annotated(base: type) -> set[str]:
    return set(getattr(base, "__annotations__", {}))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("file", STUDIES, ids=lambda file: file.stem)
def test_example_study_is_planned(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("parts", "plugin"):
        monkeypatch.syspath_prepend(str(ROOT / "examples" / folder))
    *_, places = header(file).text("Launch").partition("notes.txt")  # --plugin, --config-dir
    own = [word.replace("examples/", f"{ROOT}/examples/") for word in places.split()]
    done = CliRunner().invoke(cli.make_app(), ["ablate", str(file), "--dry-run", *own])
    assert done.exit_code == 0, done.output
    arms = yaml.safe_load(file.read_text(encoding="utf-8"))["arms"]
    assert all(arm in done.output for arm in arms)
