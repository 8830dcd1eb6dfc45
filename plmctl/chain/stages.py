"""The pretrainings of a recipe's chain: its header states them in command lines, whose file names
stand for the user's own.

    # Before: plmctl pretrain bart data.path=train.en run.dir=runs/bart
    # Launch: plmctl pretrain bart_translation init=runs/bart data.path=train.ro
              data.target_path=train.en

means: a BART first, on whatever is given as data.target_path; then the recipe, with init= the run
of that BART.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from plmctl.config.headers import Header
from plmctl.config.keys import is_path
from plmctl.config.recipes import load
from plmctl.config.spec import key_of
from plmctl.core.errors import UsageError
from plmctl.jobs.job import close_over

OWN = "pretrain"  # the step of the recipe itself
TUNING = "finetune"  # in front of a setting: of every fine-tuning
STARTS = ("init", "teacher")  # whose model the recipe's own is, or is made from, or learns of
# the settings that a model brings to a run that starts from it
OF_A_MODEL = ("size", "model", "position", "tokenizer")
OF_A_TEACHER = ("tokenizer",)  # the settings that a teacher brings to a new model


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
        named = {value for word in self.words for value in _list_files(word)}
        return {name for run, name in self.runs.items() if run in named}


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
    return ChainWords(tuple(own), {step: tuple(settings) for step, settings in apart.items()})


def name_stages(header: Header) -> list[str]:
    """The stages that come before the recipe."""
    return [stage.name for stage in _read_stages(header)]


def list_needed_text(header: Header) -> list[str]:
    """The words of the launch line without which there is nothing to read: all text that is not
    one corpus.
    """
    words = list_text(header.command()[3:])
    return words if [key_of(word) for word in words] != ["data.path"] else []


def list_text(words: Sequence[str]) -> list[str]:
    """The words that say what is read."""
    return [word for word in words if key_of(word).startswith("data.")]


def plan_stages(recipe: str, header: Header, words: ChainWords) -> list[ChainStage]:
    """The pretrainings in the order in which they run. If the user names a run, the pretrainings
    before it are left out.
    """
    before, launch = _read_stages(header), header.command()[3:]
    runs = before[0].runs if before else {}
    said = {key_of(word): value_of(word) for word in words.own}
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
        words = replace(words, own=tuple(word for word in words.own if word not in of_model))
    text = list_text(words.own)
    stages = []
    for stage in before:
        shares = set(list_text(stage.words)) == set(list_text(launch))
        filled = list(_fill_in(stage, launch, said, header))
        if text and shares:  # it reads what the recipe reads
            filled = [word for word in filled if word not in list_text(filled)] + text
        model = of_model if stage.name in starts else []
        stages.append(replace(stage, words=(*filled, *model, *words.of(stage.name))))
    started = [word for word in _leave_out_files(launch, runs) if key_of(word) not in said]
    stages.append(ChainStage(OWN, recipe, (*started, *words.own, *words.of(OWN)), runs))
    uses = {stage.name: stage.uses for stage in stages}
    needed = close_over([OWN], uses.__getitem__)
    return [stage for stage in stages if stage.name in needed]


def _read_stages(header: Header) -> list[ChainStage]:
    """The stages that stand in the lines `# Before:`, in their words but `run.dir`."""
    stages, runs = [], dict[str, str]()
    for line in header.texts("Before"):
        words = header.words(line)
        run = next((value_of(word) for word in words if key_of(word) == "run.dir"), "")
        if words[:2] != ["plmctl", "pretrain"] or not run:
            raise UsageError(
                f"{header.file}: # Before: {line}:"
                " wanted is plmctl pretrain <recipe> ... run.dir=runs/<name>"
            )
        runs[run] = run.rstrip("/").rpartition("/")[2]
        own = tuple(word for word in words[3:] if key_of(word) != "run.dir")
        stages.append(ChainStage(runs[run], words[2], own, runs))
    return stages


def _fill_in(
    stage: ChainStage, launch: Sequence[str], said: Mapping[str, str], header: Header
) -> Iterator[str]:
    """The words of a stage with the user's files instead of the examples; words without a file of
    the user are left out.
    """
    examples = {value_of(word): key_of(word) for word in launch if is_path(key_of(word))}
    for word in stage.words:
        key, value = key_of(word), value_of(word)
        if not is_path(key) or value in stage.runs:
            yield word
        elif value not in examples:
            raise UsageError(f"{header.file}: # Before: {word}: the launch line has no {value}")
        elif examples[value] in said:
            yield f"{key}={said[examples[value]]}"


def _leave_out_files(words: Sequence[str], runs: Mapping[str, str]) -> list[str]:
    return [word for word in words if not is_path(key_of(word)) or value_of(word) in runs]


def _list_files(word: str) -> list[str]:
    """The value of a word that names files, and its items where it is a list."""
    value = value_of(word)
    items = [item.strip() for item in value.strip("[]").split(",")]
    return [value, *items] if is_path(key_of(word)) else []


def value_of(word: str) -> str:
    """The value that an override gives."""
    return word.partition("=")[2]
