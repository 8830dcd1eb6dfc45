"""Every step of a chain composed and checked before the first one runs; a step is named by all
that decides its result.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from plmctl.chain.stages import OWN, TUNING, Given, Stage, given, names, needs_text, stages
from plmctl.chain.steps import Chain, Config, Step
from plmctl.commands.finetune import build_task
from plmctl.commands.fitted import OF_THE_MODEL
from plmctl.core.errors import AbsentData, ConfigError, DataError
from plmctl.data.shards import is_tokens
from plmctl.run import schema
from plmctl.run.assemble import settled
from plmctl.run.build import plain
from plmctl.run.compose import Flags, composed
from plmctl.run.contract import check_contract
from plmctl.run.corpus import check_data, check_updates
from plmctl.run.headers import Header, naming_source
from plmctl.run.loading import open_source, refuse_another_model
from plmctl.run.overrides import spelled
from plmctl.run.recipes import conf_dir, load
from plmctl.run.tokenize import sources
from plmctl.study.composing import builtin_task
from plmctl.study.content import JOB
from plmctl.study.study import BUILTIN
from plmctl.tasks.base import Task
from plmctl.tasks.inference import check_splits

DOCSTRINGS = {"docstrings": BUILTIN}  # the labelled text that comes with Python: needs no download
# of it, as in `make demo`
SMALL = ("train.epochs=10", "optim.lr=5e-4", "train.eval_every=0", "train.save_every=0")
TOKENS = "tokenize"  # the first such step; another is called after its stage, too
LENGTHS = {f"train.{name}" for name in schema.LENGTHS}


def plan(
    recipe: str, header: Header, words: Sequence[str], tasks: Mapping[str, str] | None, flags: Flags
) -> Chain:
    """The chain with these settings; raises everything that is wrong with them, and names all data
    that are absent.

    `tasks`: {the name of a task: where its files are, or "builtin"}; None: what the header says,
    else the built-in one.
    """
    if tasks is None:
        tasks = {} if header.text("Tasks") == "none" else DOCSTRINGS
    made = _Planner(header, given(words, (*_steps(header, tasks), OWN)), flags)
    made.need_text()
    for stage in stages(recipe, header, made.given):
        made.pretrain(stage)
    for name, path in tasks.items():
        made.tuned(name, path)
    # a student of layers alone has none to be measured by
    if not tasks and made.pretrained[OWN].config["objective"]:
        made.evaluated(OWN, "task=held_out")
    if made.absent:
        raise DataError("\n".join(made.absent))
    return Chain(recipe, header, tuple(words), tuple(made.steps.values()))


def _steps(header: Header, tasks: Mapping[str, str]) -> list[str]:
    """Names that may stand in front of a setting."""
    before = names(header)
    return [
        TOKENS,
        *before,
        *map(_tokenizing, (*before, OWN)),
        *tasks,
        *(f"eval-{name}" for name in (*tasks, OWN)),
    ]


def _tokenizing(stage: str) -> str:
    return f"{TOKENS}-{stage}"


class _Planner:
    """Steps by folder, each made once; `absent` collects what is to be downloaded first."""

    def __init__(self, header: Header, words: Given, flags: Flags) -> None:
        self.header, self.given, self.flags = header, words, flags
        self.steps: dict[str, Step] = {}
        self.absent: list[str] = []
        self.pretrained: dict[str, Step] = {}
        self.texts: list[tuple[Config, Step]] = []  # what was tokenized, and where
        self._known: dict[tuple[str | None, ...], DictConfig] = {}  # compositions

    def need_text(self) -> None:
        """A recipe that reads more than one corpus has no text of its own to fall back on."""
        wanted = needs_text(self.header)
        if wanted and not any(word.startswith("data.") for word in self.given.own):
            example = " ".join(word for word in self.header.command() if word.startswith("data."))
            raise DataError(
                f"{self.header.file.stem} reads {', '.join(wanted)},"
                f" and nothing is given{self._source()}",
                fix=f"plmctl recipes run {self.header.file.stem} {example}",
            )

    def pretrain(self, stage: Stage) -> None:
        """A stage, after the step that tokenizes its text."""
        words = [self._linked(word, stage) for word in stage.words]
        cfg = self._composed("pretrain", stage.recipe, words)
        check_data(cfg)
        check_updates(cfg, processes=cfg.train.processes, plugins=self.flags.plugins)
        check_contract(cfg, self.flags.plugins, self.flags.config_dirs)
        self._look(cfg)
        tokens = self._tokens(stage, cfg)
        if tokens is not None:
            kept = [
                word
                for word in words
                if not word.startswith("data.") or word.startswith("data.cache_dir=")
            ]
            words = [*kept, *_resets(cfg, _keys(words)), f"data.path={tokens.run}"]
        self.pretrained[stage.name] = self._add(stage.name, "pretrain", stage.recipe, words)

    def tuned(self, name: str, path: str) -> None:
        """Fine-tuning on a task, and its evaluation."""
        own = self.given.of(TUNING, name)
        refuse_another_model(own, OF_THE_MODEL, key=TUNING)
        where = str(builtin_task()) if path == BUILTIN else path
        task = "classification" if name in DOCSTRINGS else name
        small = _without(SMALL, own) if name in DOCSTRINGS else []
        words = [
            f"task={task}",
            f"task.path={where}",
            f"checkpoint={self.pretrained[OWN].run}",
            *small,
            *own,
        ]
        config = self._composed("finetune", None, words)
        built = self._read(task, config)
        bound = settled(self._model(), plugins=self.flags.plugins)["position"].get("max_length")
        if built is not None and bound is not None and built.longest > bound:
            told = set(_keys(own))
            fits = {
                f"task.{key}": length
                for key, length in built.fitting(bound).items()
                if length != getattr(built, key)
            }
            if told & set(fits):
                each = " ".join(f"{name}.{key}={length}" for key, length in fits.items())
                raise ConfigError(
                    f"{name}.task.max_length",
                    ...,
                    f"at most {bound}, the longest row of the model",
                    fix=each,
                )
            words += [f"{key}={length}" for key, length in fits.items()]
        self.evaluated(self._add(name, "finetune", None, words).name)

    def evaluated(self, of: str, *words: str) -> None:
        step = next(step for step in reversed(self.steps.values()) if step.name == of)
        self._add(
            f"eval-{of}",
            "eval",
            None,
            [f"checkpoint={step.run}", *words, *self.given.of(f"eval-{of}")],
        )

    def _tokens(self, stage: Stage, cfg: DictConfig) -> Step | None:
        """The step that tokenizes a stage's text; None where it names tokens, or pretraining itself
        tokenizes.

        That is so for several texts, and for a text of its own of a stage whose tokenizer comes
        with weights or a teacher.
        """
        data = plain(cfg.data)
        if (
            data["mixture"]
            or any({"path", "mixture"} & set(node) for node in data["sources"].values())
            or is_tokens(data["path"])
        ):
            return None
        known = next((step for text, step in self.texts if text == data), None)
        if cfg.init or cfg.get("teacher"):
            return known
        tokenizer = plain(cfg.tokenizer)
        words = [
            *self._spelled(tokenizer),
            *_changed("data", data, dataclasses.asdict(schema.Data())),
        ]
        name = _tokenizing(stage.name) if self.texts else TOKENS
        step = self._add(name, "tokenize", None, [*words, *self.given.of(name)])
        self.texts.append((data, step))
        return step

    def _spelled(self, node: Config) -> list[str]:
        """The words that choose this tokenizer."""
        folders = [
            place / "tokenizer" for place in (*map(Path, self.flags.config_dirs), conf_dir())
        ]
        files = [file for folder in folders for file in sorted(folder.glob("*.yaml"))]
        name, default = next(
            (file.stem, load(file))
            for file in files
            if load(file).get("_target_") == node["_target_"]
        )
        return [f"tokenizer={name}", *_changed("tokenizer", node, plain(default))]

    def _model(self) -> Config:
        """The config that decides the model of the recipe: that of the weights which it starts
        from.
        """
        config = self.pretrained[OWN].config
        while init := config.get("init"):
            if not init.startswith(JOB):
                return open_source(init, plugins=self.flags.plugins).config
            config = self.steps[init.removeprefix(JOB)].config
        return config

    def _look(self, cfg: DictConfig) -> None:
        """Whether the text is there."""
        data = plain(cfg.data)
        nodes = [data, *data["mixture"].values(), *data["sources"].values()]
        for path in {spelled(node.get("path")): node.get("path") for node in nodes}.values():
            if path is None or is_tokens(path) or str(path).startswith("hf:"):
                continue
            try:
                for source in sources(data, path):
                    if source is not None:
                        source.files()
            except DataError as error:
                self._miss(f"{error}{self._source()}")

    def _read(self, name: str, cfg: DictConfig) -> Task | None:
        """The task, and all of its files that are needed; None where they are absent."""
        reader = OmegaConf.create(
            {
                **plain(cfg),
                "model": self._model()["model"],
                "pattern": self.pretrained[OWN].config["pattern"],
            }
        )
        task = build_task(reader, self.flags)
        try:
            with naming_source("task", name, self.flags.config_dirs):
                if "dev" not in check_splits(task):
                    raise AbsentData(
                        "has no dev split, by which the best checkpoint is chosen",
                        file=cfg.task.path,
                    )
        except DataError as error:
            self._miss(str(error))
            return None
        return task

    def _miss(self, line: str) -> None:
        if line not in self.absent:
            self.absent.append(line)

    def _source(self) -> str:
        text = self.header.text("Data")
        return f"\n  data: {text}" if text else ""

    def _linked(self, word: str, stage: Stage) -> str:
        """A word with the runs of earlier steps in the place of what the header calls them."""
        key, equals, value = word.partition("=")
        for run, name in stage.runs.items():
            if schema.is_path(key) and name in self.pretrained:
                items = value.strip("[]").split(",")
                filled = [
                    self.pretrained[name].run if item.strip() == run else item for item in items
                ]
                value = (
                    f"[{','.join(filled)}]"
                    if value.startswith("[")
                    else filled[0]
                    if len(items) == 1
                    else value
                )
        return f"{key}{equals}{value}"

    def _composed(self, verb: str, recipe: str | None, words: Sequence[str]) -> DictConfig:
        asked = (verb, recipe, *words)
        if asked not in self._known:
            flags = self.flags
            self._known[asked] = composed(
                verb, recipe, words, config_dirs=flags.config_dirs, plugins=flags.plugins
            ).cfg
        return self._known[asked]

    def _add(self, name: str, verb: str, recipe: str | None, words: Sequence[str]) -> Step:
        later = ["out=later"] if verb == "tokenize" else []
        config = {
            str(key): value
            for key, value in plain(self._composed(verb, recipe, [*words, *later])).items()
        }
        step = Step(
            name, verb, recipe, tuple(words), config, self.flags.plugins, self.flags.config_dirs
        )
        return self.steps.setdefault(step.folder, step)


def _keys(words: Sequence[str]) -> list[str]:
    return [word.lstrip("+~").partition("=")[0] for word in words]


def _without(words: Sequence[str], told: Sequence[str]) -> list[str]:
    """`words` that `told` does not say otherwise; a length clears another one."""
    keys = {*_keys(told), *(LENGTHS if LENGTHS & set(_keys(told)) else ())}
    return [word for word, key in zip(words, _keys(words), strict=True) if key not in keys]


def _changed(slot: str, node: Mapping[str, Any], default: Mapping[str, Any]) -> list[str]:
    """The words that make `node` of `default`."""
    return [
        f"{slot}.{name}={spelled(node[name])}"
        for name in default
        if node.get(name) != default[name]
    ]


def _resets(cfg: DictConfig, told: Sequence[str]) -> list[str]:
    """The words that take back what a recipe itself says of raw text, once it is tokens."""
    default, data = dataclasses.asdict(schema.Data()), plain(cfg.data)
    given = [
        name
        for name in default
        if data[name] != default[name]
        and f"data.{name}" not in (*told, "data.path", "data.cache_dir")
    ]
    return [f"data.{name}={spelled(default[name])}" for name in given]
