"""Every step of a chain, composed and checked before the first one runs, as a job that is named by
all that decides its result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from plmctl.artifacts.loading import open_source
from plmctl.artifacts.model_facts import reading
from plmctl.chain.stages import (
    OWN,
    TUNING,
    ChainStage,
    ChainWords,
    list_needed_text,
    list_text,
    name_stages,
    plan_stages,
    sort_words,
)
from plmctl.config import groups, schema
from plmctl.config.budgets import NONE
from plmctl.config.decision import Decision
from plmctl.config.headers import Header
from plmctl.config.keys import is_path
from plmctl.config.recipes import conf_dir, load
from plmctl.config.spec import Provenance, key_of, thaw
from plmctl.core.errors import ConfigError, DataError
from plmctl.jobs.configs import (
    Configs,
    find_missing_files,
    find_missing_text,
    is_tokenized_first,
    spell_changes,
    spell_task,
)
from plmctl.jobs.job import REFERENCE, Config, Job, locate_runs
from plmctl.jobs.key import compute_key
from plmctl.runs.adapt import refuse_another_model
from plmctl.tasks.readers.builtin import BUILTIN

DOCSTRINGS = {"docstrings": BUILTIN}  # the labelled text that comes with Python: needs no download
# the settings of a fine-tuning on it, as in `make demo`
SMALL = ("train.epochs=10", "optim.lr=5e-4", "train.eval_every=0", "train.save_every=0")
TOKENS = "tokenize"  # the first such step; another is called after its stage, too
LENGTHS = {f"train.{name}" for name in groups.LENGTHS}


@dataclass(frozen=True)
class RecipeChain:
    """All steps of a recipe's chain, by the names of their jobs, in the order in which they run."""

    recipe: str
    header: Header
    words: tuple[str, ...]
    jobs: Mapping[str, Job]
    decisions: Mapping[str, Decision]  # {stage: what follows from its train.minutes}

    def lines(self, out: Path) -> list[str]:
        """The steps as one would type them, with their folders in `out`."""
        runs = locate_runs(self.jobs, out)
        return [job.line(runs) for job in self.jobs.values()]


def plan(
    recipe: str,
    header: Header,
    words: Sequence[str],
    tasks: Mapping[str, str] | None,
    given: Provenance,
) -> RecipeChain:
    """Plan the chain of a recipe.

    Args:
        recipe: its name or file.
        words: settings of the recipe's own pretraining, and of steps: "sst2.optim.lr=1e-4".
        tasks: {the name of a task: where its files are, or "builtin"}; None: what the header says,
            else the built-in one.

    Raises:
        PlmctlError: everything that is wrong with the settings, and all data that are absent.
    """
    if tasks is None:
        tasks = {} if header.text("Tasks") == "none" else DOCSTRINGS
    planner = _Planner(header, sort_words(words, (*_steps(header, tasks), OWN)), given)
    planner.need_text()
    for stage in plan_stages(recipe, header, planner.words):
        planner.pretrain(stage)
    for name, path in tasks.items():
        planner.fine_tune(name, path)
    # a student of layers alone has none to be measured by
    if not tasks and planner.pretrained[OWN].config["objective"]:
        planner.evaluate(planner.pretrained[OWN], "task=held_out")
    if planner.absent:
        raise DataError("\n".join(dict.fromkeys(planner.absent)))
    return RecipeChain(recipe, header, tuple(words), planner.jobs, planner.decisions)


def _steps(header: Header, tasks: Mapping[str, str]) -> list[str]:
    """Names that may stand in front of a setting."""
    before = name_stages(header)
    tokenizing = [f"{TOKENS}-{stage}" for stage in (*before, OWN)]
    return [TOKENS, *before, *tokenizing, *tasks, *(f"eval-{name}" for name in (*tasks, OWN))]


class _Planner:
    """Jobs by name, each made once; `absent` collects what is to be downloaded first."""

    def __init__(self, header: Header, words: ChainWords, given: Provenance) -> None:
        self.header, self.words, self.given = header, words, given
        self.configs = Configs(given)
        data = header.text("Data")
        self.source = f"\n  data: {data}" if data else ""  # behind a message about absent text
        self.jobs: dict[str, Job] = {}
        self.absent: list[str] = []
        self.pretrained: dict[str, Job] = {}
        self.decisions: dict[str, Decision] = {}
        # each text's data settings, and the job that tokenizes it
        self.texts: list[tuple[Config, Job]] = []

    def need_text(self) -> None:
        """A recipe that reads more than one corpus has no text of its own to fall back on."""
        wanted = list_needed_text(self.header)
        if wanted and not list_text(self.words.own):
            raise DataError(
                f"{self.header.file.stem} reads {', '.join(map(key_of, wanted))},"
                f" and nothing is given{self.source}",
                fix=f"plmctl recipes run {self.header.file.stem} {' '.join(wanted)}",
            )

    def pretrain(self, stage: ChainStage) -> None:
        """A stage, after the step that tokenizes its text."""
        words = [self._linked(word, stage) for word in stage.words]
        config = self.configs.compose_pretraining(stage.recipe, words)
        if decision := self.configs.decide(stage.recipe, words):
            self.decisions[stage.name] = decision
            words = [*decision.words, *words, NONE]  # so that each line makes the same everywhere
        self.absent += [f"{error}{self.source}" for error in find_missing_text(config["data"])]
        tokens = self._tokenize(stage, config)
        if tokens is not None:
            said = [key_of(word) for word in words]
            raw = [word for word in list_text(words) if key_of(word) != "data.cache_dir"]
            words = [word for word in words if word not in raw]
            words += [*_resets(config["data"], said), f"data.path={tokens.reference}"]
        self.pretrained[stage.name] = self._add(stage.name, "pretrain", words, stage.recipe)

    def fine_tune(self, name: str, path: str) -> None:
        """Fine-tuning on a task, and its evaluation."""
        own = self.words.of(TUNING, name)
        refuse_another_model(own, schema.OF_THE_MODEL, key=TUNING)
        builtin = name in DOCSTRINGS
        part = "classification" if builtin else name
        words = [
            *spell_task(part, path),
            f"checkpoint={self.pretrained[OWN].reference}",
            *(_without(SMALL, own) if builtin else ()),
            *own,
        ]
        words += self._lengths(name, part, self.configs.compose("finetune", words), own)
        self.evaluate(self._add(name, "finetune", words))

    def evaluate(self, job: Job, *words: str) -> None:
        """The evaluation of a job's run."""
        name = f"eval-{job.label}"
        words = (f"checkpoint={job.reference}", *words, *self.words.of(name))
        added = self._add(name, "eval", words)
        self.absent += [str(error) for error in find_missing_files(added.config)]

    def _lengths(self, name: str, part: str, config: Config, own: Sequence[str]) -> list[str]:
        """The words that make the rows of a task fit the model; reads all files of the task."""
        model = self._model()
        seen = config | {"model": model["model"], "pattern": self.pretrained[OWN].config["pattern"]}
        try:
            task = self.configs.read_task(part, config, reading(seen, self.given.plugins))
        except DataError as error:
            self.absent.append(str(error))
            return []
        bound = self.configs.max_length(model)
        if bound is None or task.lengths.longest <= bound:
            return []
        lengths = task.lengths.fit(bound).items()
        fitting = [
            f"task.{key}={length}" for key, length in lengths if length != getattr(task, key)
        ]
        if set(map(key_of, own)) & set(map(key_of, fitting)):
            fix = " ".join(f"{name}.{word}" for word in fitting)
            allowed = f"at most {bound}, the longest row of the model"
            raise ConfigError(f"{name}.task.max_length", ..., allowed, fix=fix)
        return fitting

    def _tokenize(self, stage: ChainStage, config: Config) -> Job | None:
        """The step that tokenizes a stage's text; None without text, or where pretraining itself
        tokenizes. Pretraining also tokenizes the own text of a stage whose tokenizer comes with
        weights or a teacher.
        """
        data = config["data"]
        if not is_tokenized_first(data):
            return None
        known = next((job for text, job in self.texts if text == data), None)
        if config["init"] or config.get("teacher"):
            return known
        name = f"{TOKENS}-{stage.name}" if self.texts else TOKENS
        words = [
            *self._tokenizer(config["tokenizer"]),
            *spell_changes("data", data, thaw(groups.Data())),
            *self.words.of(name),
        ]
        job = self._add(name, "tokenize", words)
        self.texts.append((data, job))
        return job

    def _tokenizer(self, node: Config) -> list[str]:
        """The words that choose this tokenizer."""
        folders = [*map(Path, self.given.config_dirs), conf_dir()]
        files = [file for folder in folders for file in sorted(folder.glob("tokenizer/*.yaml"))]
        defaults = ((file.stem, load(file)) for file in files)
        same = (pair for pair in defaults if pair[1].get("_target_") == node["_target_"])
        name, default = next(same)
        return [f"tokenizer={name}", *spell_changes("tokenizer", node, default)]

    def _model(self) -> Config:
        """The config that decides the model of the recipe: that of the weights which it starts
        from.
        """
        config = self.pretrained[OWN].config
        while init := config.get("init"):
            if not init.startswith(REFERENCE):
                return open_source(init, plugins=self.given.plugins).config
            config = self.jobs[init.removeprefix(REFERENCE)].config
        return config

    def _linked(self, word: str, stage: ChainStage) -> str:
        """A word in which the runs of earlier steps replace the names that the header uses for
        them.
        """
        key, equals, value = word.partition("=")
        if not is_path(key):
            return word
        runs = {
            run: self.pretrained[name].reference
            for run, name in stage.runs.items()
            if name in self.pretrained
        }
        if not value.startswith("["):
            return f"{key}{equals}{runs.get(value, value)}"
        items = [runs.get(item.strip(), item) for item in value.strip("[]").split(",")]
        return f"{key}=[{','.join(items)}]"

    def _add(self, label: str, verb: str, words: Sequence[str], recipe: str | None = None) -> Job:
        later = ["out=later"] if verb == "tokenize" else []
        config = self.configs.compose(verb, [*words, *later], recipe)
        name, given = f"{label}-{compute_key(verb, config)[:8]}", self.given
        job = Job(name, verb, label, config, recipe, tuple(words), given.plugins, given.config_dirs)
        return self.jobs.setdefault(name, job)


def _without(words: Sequence[str], said: Sequence[str]) -> list[str]:
    """`words` that `said` does not say otherwise; a length clears another one."""
    keys = {key_of(word) for word in said}
    keys |= LENGTHS if LENGTHS & keys else set()
    return [word for word in words if key_of(word) not in keys]


def _resets(data: Config, said: Sequence[str]) -> list[str]:
    """The words that take back what a recipe itself says of raw text, once it is tokens."""
    default = thaw(groups.Data())
    words = spell_changes("data", default, {name: data[name] for name in default})
    kept = (*said, "data.path", "data.cache_dir")
    return [word for word in words if key_of(word) not in kept]
