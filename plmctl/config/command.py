"""A command: what --help says of it, its settings, and what it does.

The file of a command lies in plmctl/commands, or in the package `commands` of a plug-in. The
program, Python, jobs, completion and the schema read its class.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

from plmctl.config.spec import Provenance, RunSpec
from plmctl.core.importing import explain_broken, import_own
from plmctl.core.terminal import tell

RECIPE = "recipe"
HOME = "plmctl"  # the package of our own commands
FOLDER = "commands"

Result = int | Mapping[str, Any] | None  # an exit code, or what was measured
Lines = Sequence[tuple[str, str]]  # (what one writes, what it means)


@dataclass(frozen=True)
class About:
    """The help of a command, and the words that it takes."""

    name: str  # as it is typed: "data check"
    place: int  # in the list of commands
    examples: tuple[str, str]  # two lines to type; those of all commands run one after the other
    # the meaning of a word without "=": RECIPE, or the setting that it stands for ("data.path"),
    # which the other words may decide; "": such words have no meaning
    bare: str | Callable[[Sequence[str]], str] = ""
    several: bool = False  # whether several such words are allowed
    metavar: str = ""  # such a word in the line of usage: "RUN"
    recipe: str | None = None  # where the words name none
    marks: tuple[tuple[str, str], ...] = ()  # (a word behind the first, the setting it stands for)
    options: str = ""  # names of options that other commands have, too
    # options of its own: (name, an annotation of Typer, default)
    own_options: tuple[tuple[str, Any, Any], ...] = ()
    slots: str = ""  # the slots whose parts are listed: "task search"
    lists: str = ""  # a folder of recipes/ that is listed: "." or "studies"
    task: str = ""  # the task whose settings are shown as an example
    talks: bool = True  # prints more than results, which --quiet and --verbose are about
    takes: str = ""  # another command, whose settings it takes: "pretrain"
    only: tuple[str, ...] = ()  # settings of plmctl finetune that this command adds
    # (title, lines) of a section of its own
    section: Callable[[], tuple[str, Lines]] | None = None

    @property
    def verb(self) -> str:
        """The last word of the name, by which jobs and Python call the command."""
        return self.name.rpartition(" ")[2]

    @property
    def takes_path(self) -> bool:
        """Whether a word without "=" is the value of a setting, all of which are paths."""
        return self.bare not in ("", RECIPE)


class Command(RunSpec):
    """A command with settings: the fields of a frozen dataclass, each with its help in a comment.

    @dataclass(frozen=True)
    class Count(Command):
        \"\"\"Count the letters of a text.\"\"\"

        about = About(
            "count", place=300, examples=("plmctl count text=a", "plmctl count text=b")
        )

        text: str = MISSING  # the text

        def perform(self) -> Result:
            print(len(self.text))
            return None
    """

    about: ClassVar[About]
    starts_jobs: ClassVar[bool] = False  # runs jobs of its own, which a launcher starts

    @classmethod
    def read(cls, given: Provenance, **options: Any) -> Provenance:
        """Complete a command line by the options of the command's own."""
        return replace(given, **options)

    def perform(self) -> Result:
        """Do what the settings say."""
        raise NotImplementedError(type(self).__name__)

    def report(self, found: Mapping[str, Any], lines: Iterable[str]) -> Result:
        """Print results: as JSON where the user wants it, else as lines."""
        for line in [json.dumps(found)] if self.provenance.json else lines:
            tell(line)
        return 0

    def check(self) -> None:
        """Open, build and compare all that the settings name, and raise what does not fit."""


class Tool:
    """A command with options alone: those of the signature of `perform`."""

    about: ClassVar[About]

    @staticmethod
    def perform(*args: Any, **options: Any) -> None:
        """Do what the options say."""
        raise NotImplementedError


# {verb: command}, also of plug-ins that later calls do not name
_LOADED: dict[str, type[Command] | type[Tool]] = {}


class Listed(NamedTuple):
    """A command in the list of --help."""

    name: str
    place: int
    about: str  # its first sentence
    module: str


def list_commands(plugins: tuple[str, ...] = ()) -> dict[str, Listed]:
    """{name: its entry in --help} of all commands, in their order.

    Files are parsed, and none is imported: --help takes a third of the time.
    """
    found = [
        listed
        for package in (HOME, *plugins)
        for file in _files(package)
        if (listed := _read_file(file, f"{package}.{FOLDER}.{file.stem}"))
    ]
    return {each.name: each for each in sorted(found, key=lambda each: each.place)}


def find_module(verb: str, plugins: Sequence[str] = ()) -> str:
    """The module of the command whose name ends with `verb`, or ""."""
    for package in (HOME, *plugins):
        stems = {file.stem for file in _files(package)}
        endings = [stem for stem in sorted(stems) if stem.endswith(f"_{verb}")]
        if stem := next((each for each in (verb, *endings) if each in stems), ""):
            return f"{package}.{FOLDER}.{stem}"
    return ""


def load_command(module: str) -> type[Command] | type[Tool]:
    """The class that the file of a command declares, which `find_command` knows from then on."""
    kind = _find_class(import_own(module))
    _LOADED[kind.about.verb] = kind
    return kind


@functools.cache  # by the module itself: one that is imported anew has another class
def _find_class(module: ModuleType) -> type[Command] | type[Tool]:
    found: list[type[Command] | type[Tool]] = [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and isinstance(vars(kind).get("about"), About)
    ]
    (kind,) = found
    return kind


def find_command(verb: str, plugins: Sequence[str] = ()) -> type[Command]:
    """The command with settings whose name ends with `verb`; KeyError if no command does."""
    module = find_module(verb, plugins)
    kind = load_command(module) if module else _LOADED[verb]
    if not issubclass(kind, Command):
        raise KeyError(verb)
    return kind


def is_ours(verb: str) -> bool:
    """Whether a command is none of a plug-in."""
    return find_command(verb).__module__.startswith(f"{HOME}.")


def find_settings(verb: str) -> type[Command] | None:
    """The command whose settings the command `verb` takes: itself or another; None without any."""
    module = find_module(verb)
    kind = load_command(module) if module else _LOADED.get(verb)
    if kind is None or kind.about.takes:
        return find_command(kind.about.takes) if kind else None
    return kind if issubclass(kind, Command) else None


def all_commands(plugins: tuple[str, ...] = ()) -> dict[str, type[Command]]:
    """{verb: command} of all commands that have settings of their own."""
    kinds = [load_command(each.module) for each in list_commands(plugins).values()]
    own = (kind for kind in kinds if issubclass(kind, Command) and not kind.about.takes)
    return {kind.about.verb: kind for kind in own}


def perform(spec: RunSpec) -> Result:
    """Do what the command of `spec` does with it."""
    given = spec.provenance
    return find_command(given.command, given.plugins).perform(spec)  # type: ignore[arg-type]


def check(spec: RunSpec) -> None:
    """Raise what is wrong with a new run, before anything is written."""
    given = spec.provenance
    find_command(given.verb, given.plugins).check(spec)  # type: ignore[arg-type]


def _files(package: str) -> tuple[Path, ...]:
    """The files of a package's commands; none of a package that cannot be imported yet."""
    try:
        found = importlib.util.find_spec(f"{package}.{FOLDER}")
    except (ImportError, ValueError):
        return ()
    except SyntaxError as error:
        raise explain_broken(package, error) from None
    return _list_files(tuple((found and found.submodule_search_locations) or ()))


@functools.cache
def _list_files(folders: tuple[str, ...]) -> tuple[Path, ...]:
    files = (file for folder in folders for file in sorted(Path(folder).glob("*.py")))
    return tuple(file for file in files if not file.stem.startswith("_"))


@functools.cache
def _read_file(file: Path, module: str) -> Listed | None:
    """The line of --help of the command that a file declares."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    except SyntaxError as error:
        raise explain_broken(module, error) from None
    for node in tree.body:
        for call in _declarations(node):
            (name,) = (ast.literal_eval(argument) for argument in call.args)
            (place,) = (
                ast.literal_eval(word.value) for word in call.keywords if word.arg == "place"
            )
            text = ast.get_docstring(node) or ""  # type: ignore[arg-type]
            return Listed(name, place, " ".join(text.partition("\n\n")[0].split()), module)
    return None


def _declarations(node: ast.stmt) -> Iterator[ast.Call]:
    """The values of `about` in the body of a class."""
    for inner in node.body if isinstance(node, ast.ClassDef) else ():
        if isinstance(inner, ast.Assign) and isinstance(inner.value, ast.Call):
            (target,) = inner.targets
            if isinstance(target, ast.Name) and target.id == "about":
                yield inner.value
