"""The way of a setting: the modules that a value of the command line passes until it acts.

    python benchmarks/config_path.py [KEY=NUMBER ...] [--command pretrain|finetune|eval]

Each word is given to a command of one update, or of one split, with a number that stands nowhere
else, and every call of a function of plmctl is watched. The value passes a module when one of its
functions is called with it before the first update: with the number, with the word, or with the
group in which one of them is (the settings `train`, the part `optim`, the list of words). It acts
in the rooms of the parts and of the trainer, between `storage` and `interop`; the modules there are
shown apart. A climb is a call with the value from a room into a higher one (tests/test_imports.py
has their order), unless it makes a record of settings. Goal: at most 12 modules before it acts, no
climb, and a spec in at most 25 files; the exit code says whether all hold.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from plmctl.config.spec import Part, Record, RunSpec

GOAL, FILES = 12, 25  # modules that a value passes, files that receive a spec
WORDS = (
    "train.clip=0.4375",
    "model.stack.residual.dropout=0.21875",
    "optim.lr=0.00048828125",
    "noise.token_mask.rate=0.171875",
)
SMALL = (
    *("size=tiny", "size.width=16", "size.num_heads=2", "size.inner_width=32", "tokenizer=char"),
    *("train.steps=1", "train.batch_size=4", "train.device=cpu"),
    *("train.precision=fp32", "train.compile=false", "train.threads=1"),
)
TASK = ("task=classification", "task.path=builtin", "task.max_length=32")
COMMANDS = {
    "pretrain": ("bert", "data.path=text.txt", "run.dir=run", "format.max_length=32", *SMALL),
    "finetune": (*TASK, "checkpoint=null", "run.dir=run", *SMALL, "train.epochs=null"),
    "eval": ("run", "task=classification", "task.path=builtin", "device=cpu"),
}
TEXT = "\n\n".join(f"A line of text, number {n}.\nAnd one more beside it." for n in range(60))
ROOMS = (
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


@dataclass
class Way:
    """Where one value was seen."""

    number: str  # as it is typed
    modules: dict[str, None] = field(default_factory=dict)  # in the order of the first call
    specs: dict[str, None] = field(default_factory=dict)  # modules that receive a whole spec
    begun: bool = False  # the first update
    climbs: dict[str, None] = field(default_factory=dict)

    def watch(self, frame: FrameType, event: str, arg: object) -> None:
        """A profiler (`sys.setprofile`): note the calls that hand the value on."""
        module = frame.f_globals.get("__name__", "")
        if event != "call" or not module.startswith("plmctl.") or "<" in frame.f_code.co_name:
            return
        self.begun |= (module, frame.f_code.co_name) == ("plmctl.training.trainer", "fit")
        values = list(_arguments(frame))
        if any(isinstance(value, RunSpec) for value in values):
            self.specs[module] = None
        if not any(map(self._is_in, values)) or (self.begun and not _acts(module)):
            return
        self.modules[module] = None
        caller = _caller(frame)
        made = frame.f_code.co_name == "__init__" and isinstance(values[0], Record)
        if caller and _room(caller) < _room(module) and not made:
            self.climbs[f"{caller} -> {module}"] = None

    def before(self) -> list[str]:
        """The modules that it passes until it acts."""
        return [module for module in self.modules if not _acts(module)]

    def _is(self, value: object) -> bool:
        if type(value) is str:
            return value.rpartition("=")[2] == self.number
        return type(value) in (int, float) and value == float(self.number)

    def _is_in(self, value: object) -> bool:
        return self._is(value) or any(self._is(inner) for inner in _members(value))


def trace(word: str, command: str = "pretrain") -> Way:
    """The way of one word, `key=number`, in a small run of a command."""
    way = Way(word.partition("=")[2])
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        Path("text.txt").write_text(TEXT, encoding="utf-8")
        if command == "eval":
            _run(["finetune", *COMMANDS["finetune"]])
        threading.setprofile(way.watch)
        sys.setprofile(way.watch)
        try:
            _run([command, *COMMANDS[command], word])
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
    return way


def _run(words: list[str]) -> None:
    """Run a command of plmctl in this process, without its lines."""
    from plmctl.cli.app import make_app

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = make_app()(words, standalone_mode=False)
    if code:
        raise SystemExit(f"{words[-1]}: exit code {code}\n{said.getvalue()}")


def _arguments(frame: FrameType) -> Iterator[object]:
    code = frame.f_code
    named = code.co_argcount + code.co_kwonlyargcount
    starred = bool(code.co_flags & 4) + bool(code.co_flags & 8)
    for name in code.co_varnames[: named + starred]:
        yield frame.f_locals.get(name)


def _members(value: object) -> Iterator[Any]:
    """What a group of settings, or a list of words, has in it; nothing of other objects."""
    if isinstance(value, (dict, Part, Record)):
        with contextlib.suppress(AttributeError):  # of a part that is being made
            yield from list(value.values())
    elif type(value) in (list, tuple) and len(value) < 200:  # type: ignore[arg-type]
        yield from value  # type: ignore[misc]


def _caller(frame: FrameType) -> str:
    """The module of plmctl from which a call comes, over the libraries between."""
    back = frame.f_back
    while back is not None:
        module = str(back.f_globals.get("__name__", ""))
        if module.startswith("plmctl."):
            return module
        back = back.f_back
    return ""


def _acts(module: str) -> bool:
    """Whether a module is of a part, or of the trainer."""
    return ROOMS.index("storage") < _room(module) < ROOMS.index("interop")


def _room(module: str) -> int:
    return ROOMS.index(module.split(".")[1])


def main(words: list[str], command: str) -> int:
    """Print the way of each word; whether the goal holds."""
    ways = {word: trace(word, command) for word in words or WORDS}
    for word, way in ways.items():
        print(f"\n{word}: {len(way.before())} modules, {len(way.climbs)} climbs")
        print(f"  passes {', '.join(way.before())}")
        print(f"  acts in {', '.join(filter(_acts, way.modules))}")
        for climb in way.climbs:
            print(f"  climb: {climb}")
    specs = sorted({module for way in ways.values() for module in way.specs})
    print(f"\n{len(specs)} files receive a spec: {', '.join(specs)}")
    short = all(len(way.before()) <= GOAL and not way.climbs for way in ways.values())
    good = short and len(specs) <= FILES
    print(f"at most {GOAL} modules before it acts and no climb: {'yes' if short else 'no'}")
    print(f"at most {FILES} files with a spec: {'yes' if len(specs) <= FILES else 'no'}")
    return int(not good)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="the modules that a setting passes until it acts")
    parser.add_argument("words", nargs="*", metavar="KEY=NUMBER", help=f"default: {WORDS}")
    parser.add_argument("--command", choices=COMMANDS, default="pretrain")
    options = parser.parse_args()
    raise SystemExit(main(options.words, options.command))
