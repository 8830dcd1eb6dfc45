"""Which pretrainings a recipe's chain has: its header says so in command lines, whose file names
stand for the user's own.

    # Before: plmctl pretrain bart data.path=train.en run.dir=runs/bart
    # Launch: plmctl pretrain bart_translation init=runs/bart data.path=train.ro
              data.target_path=train.en

means: a BART first, on whatever is given as data.target_path; then the recipe, with init= the run
of that BART.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from plmctl.core.errors import UsageError
from plmctl.jobs.job import close_over
from plmctl.run.headers import Header
from plmctl.run.recipes import load
from plmctl.run.schema import is_path
from plmctl.run.spec import key_of

OWN = "pretrain"  # the step of the recipe itself
TUNING = "finetune"  # in front of a setting: of every fine-tuning
STARTS = ("init", "teacher")  # whose model the recipe's own is, or is made from, or learns of
OF_A_MODEL = ("size", "model", "position", "tokenizer")  # what a model that is started from brings
OF_A_TEACHER = ("tokenizer",)  # what one brings that teaches a new model


@dataclass(frozen=True)
class ChainStage:
    """One pretraining; `words` name the runs of earlier stages by `runs`: {what the header calls
    it: name of the stage}.
    """

    name: str
    recipe: str
    words: tuple[str, ...]
    runs: Mapping[str, str]

    @property
    def uses(self) -> set[str]:
        """The stages that this one starts from, or is taught by."""
        return {
            name
            for run, name in self.runs.items()
            if any(run in _paths(word) for word in self.words)
        }


@dataclass(frozen=True)
class ChainWords:
    """The words of a command line: of single steps, by their names, and of the recipe's own
    pretraining.
    """

    own: tuple[str, ...]
    steps: Mapping[str, tuple[str, ...]]

    def of(self, *steps: str) -> tuple[str, ...]:
        """The words of these steps."""
        return tuple(word for step in steps for word in self.steps.get(step, ()))


def sort_words(words: Sequence[str], steps: Sequence[str]) -> ChainWords:
    """`sst2.optim.lr=1e-4` is a word of the step sst2, `finetune.seed=1` of every fine-tuning,
    all others of the recipe.
    """
    own, apart = [], dict[str, list[str]]()
    for word in words:
        mark = word[: len(word) - len(word.lstrip("+~"))]
        step, _, rest = word.removeprefix(mark).partition(".")
        if step in (*steps, TUNING) and "=" not in step:
            apart.setdefault(step, []).append(mark + rest)
        else:
            own.append(word)
    return ChainWords(tuple(own), {step: tuple(each) for step, each in apart.items()})


def name_stages(header: Header) -> list[str]:
    """The stages that come before the recipe."""
    return [_name(header, line) for line in header.each("Before")]


def list_needed_text(header: Header) -> list[str]:
    """The settings of the launch line without which there is nothing to read: all text that is
    not one corpus.
    """
    data = [key_of(word) for word in header.command()[3:] if key_of(word).startswith("data.")]
    return data if data != ["data.path"] else []


def plan_stages(recipe: str, header: Header, words: ChainWords) -> list[ChainStage]:
    """The pretrainings in the order in which they run; those that nothing starts from, since a
    run was given, are left out.
    """
    lines = dict(zip(name_stages(header), map(header.words, header.each("Before")), strict=True))
    runs = {_run(line): name for name, line in lines.items()}
    launch = header.command()[3:]
    examples = {value_of(word): key_of(word) for word in launch if _is_file(word)}
    said = {key_of(word): word for word in words.own}
    new = "init" not in {*map(key_of, launch), *said} and not load(header.file).get("init")
    brought = OF_A_TEACHER if new else OF_A_MODEL
    of_model = [word for word in words.own if key_of(word).partition(".")[0] in brought]
    starts = {
        runs[value_of(word)]
        for word in launch
        if key_of(word) in STARTS
        and value_of(word) in runs
        and not said.keys() & {key_of(word), "init"}
    }
    if starts:  # the model is decided there
        own = tuple(word for word in words.own if word not in of_model)
        words = dataclasses.replace(words, own=own)
    stages = []
    text = [word for word in words.own if word.startswith("data.")]
    for name, line in lines.items():
        if text and _shares_text(line, launch):
            filled = [*_plain(line[3:], runs), *text]
        else:
            filled = list(_filled(line[3:], examples, said, runs, header))
        model = of_model if name in starts else []
        stages.append(ChainStage(name, line[2], (*filled, *model, *words.of(name)), runs))
    started = [
        word
        for word in launch
        if key_of(word) not in said and (not _is_file(word) or value_of(word) in runs)
    ]
    stages.append(ChainStage(OWN, recipe, (*started, *words.own, *words.of(OWN)), runs))
    uses = {stage.name: stage.uses for stage in stages}
    needed = close_over([OWN], uses.__getitem__)
    return [stage for stage in stages if stage.name in needed]


def _filled(
    line: Sequence[str],
    examples: Mapping[str, str],
    said: Mapping[str, str],
    runs: Mapping[str, str],
    header: Header,
) -> Iterator[str]:
    """The words of a line with the user's files in the place of the examples; without those that
    were not given.
    """
    for word in line:
        key, value = key_of(word), value_of(word)
        if key == "run.dir":
            continue
        if not _is_file(word) or value in runs:
            yield word
        elif value not in examples:
            raise UsageError(f"{header.file}: # Before: {word}: the launch line has no {value}")
        elif examples[value] in said:
            yield f"{key}={value_of(said[examples[value]])}"


def _plain(line: Sequence[str], runs: Mapping[str, str]) -> list[str]:
    return [
        word
        for word in line
        if key_of(word) != "run.dir" and (not _is_file(word) or value_of(word) in runs)
    ]


def _shares_text(line: Sequence[str], launch: Sequence[str]) -> bool:
    """Whether a stage reads the same text as the recipe, under the same settings."""
    one, other = (
        {word for word in words if key_of(word).startswith("data.")} for words in (line, launch)
    )
    return one == other


def _name(header: Header, line: str) -> str:
    words = header.words(line)
    if words[:2] != ["plmctl", "pretrain"] or not _run(words):
        raise UsageError(
            f"{header.file}: # Before: {line}:"
            " wanted is plmctl pretrain <recipe> ... run.dir=runs/<name>"
        )
    return _run(words).rstrip("/").rpartition("/")[2]


def _run(line: Sequence[str]) -> str:
    return next((value_of(word) for word in line if key_of(word) == "run.dir"), "")


def _paths(word: str) -> list[str]:
    """The value of a word that names files, or its items."""
    value = value_of(word)
    return (
        [value, *(item.strip() for item in value.strip("[]").split(","))] if _is_file(word) else []
    )


def _is_file(word: str) -> bool:
    return is_path(key_of(word))


def value_of(word: str) -> str:
    """The value that it gives it."""
    return word.partition("=")[2]
