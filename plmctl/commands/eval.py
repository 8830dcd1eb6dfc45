"""`plmctl eval`."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from plmctl.config.build import MISSING, build
from plmctl.config.command import About, Command, Result
from plmctl.config.groups import Data, list_unread
from plmctl.config.plugins import option
from plmctl.config.schema import TaskUser
from plmctl.config.spec import key_of
from plmctl.core.errors import ConfigError, UsageError, list_some
from plmctl.core.parts import declared
from plmctl.core.spelling import spell_line, spell_setting
from plmctl.core.terminal import WARN, remark, tell
from plmctl.core.values import Batch, Share

if TYPE_CHECKING:
    from plmctl.artifacts.loading import Loaded, Source
    from plmctl.commands.predict import Predict
    from plmctl.probes.base import Opened
    from plmctl.tasks.record import Example
    from plmctl.tasks.task import Task
    from plmctl.training.device.precision import Precision
    from plmctl.use.answering import AnsweredSplit
    from plmctl.use.asked_task import Destination
    from plmctl.use.ensemble import Member
    from plmctl.use.labeller import ModelLabeller, SingleLabeller
    from plmctl.use.predict import ScoreTable
    from plmctl.use.rehearsal import Rehearsal

Submission = Annotated[
    bool,
    typer.Option("--submission", help="Write the files that the leader board of the task accepts."),
]


@dataclass(frozen=True)
class Evaluate(TaskUser, Command):
    """Score a checkpoint, or measure perplexity.

    A checkpoint is scored on the task that it was fine-tuned on. task=lm measures perplexity.
    """

    about = About(
        "eval",
        place=80,
        examples=(
            "plmctl eval checkpoint=runs/sst2 --json",
            "plmctl eval checkpoint=runs/first task=lm data.path=README.md",
        ),
        bare="checkpoint",
        metavar="RUN",
        options="json print_config dry_run multirun config_dir plugin",
        own_options=(("submission", Submission, False),),
        slots="task runtime",
    )

    # a run, or its simple model: runs/x/baselines/words; several of one task: an ensemble
    checkpoint: str | tuple[str, ...] = MISSING
    # rule that joins several models: the mean of their probabilities, or one vote each
    joined: Literal["mean", "votes"] = "mean"
    # column of `input` that names the model for a row, where several models share one base and each
    # has its own task; null: an ensemble
    by: str | None = None
    # [temperature,threshold] are fitted to the labels of this split, stored in the checkpoint, and
    # used from then on; threshold: the best by the first metric, for two labels or any number each;
    # thresholds: one for each of any number, the best by its own F1
    calibrate: tuple[Literal["temperature", "threshold", "thresholds"], ...] = ()
    # wished accuracy of the answers: the least probability of an answer is fitted to the labels of
    # this split, and kept as these are; other rows are `unsure`; null: nothing is fitted
    abstain: Share | None = None
    task: Any = None  # null: the one the checkpoint was fine-tuned on
    format: Any = None  # this and noise: of task=held_out; null: as in the checkpoint's own run
    noise: Any = None
    # texts that are also scored when they are changed: [typos,case]
    perturb: Any = None
    runtime: Any = None  # library of the computation: torch, onnx, openvino, auto; null: torch
    # dev, test, train, or another that the task's files have (mnli: dev_mismatched); valid means
    # dev
    split: str = "dev"
    # unseen: rows with texts and bundles that the run was not trained on, which it knows by hashes;
    # null: all
    only: Literal["unseen"] | None = None
    data: Data = Data()  # corpus for task=lm and task=held_out
    # unlabelled lines, or a .csv, .tsv or .jsonl table, to be labelled; -: standard input
    input: str | None = None
    # a .csv, .tsv or .jsonl file of predictions, or a folder of them, where earlier ones are kept;
    # -: standard output; null: that for input=-, else eval/ in the run, of a model without one
    # eval/<its name>
    out: str | None = None
    overwrite: bool = False  # replace such a file, or an earlier one in the folder
    # put a ' before texts that a spreadsheet would run (=, +, -, @), in tables that are written
    guard_cells: bool = True
    batch_size: Batch = 32  # rows that the model reads at the same time
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a GPU where there is one
    # bf16, fp16: three digits; auto: as training chooses
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"
    seed: int = 0  # seed of the intervals

    def find_unread(self, typed: Collection[str]) -> dict[str, tuple[str, str]]:
        """As in RunSpec: a task with a reader has files of its own."""
        text = list_unread(why="task.path has the files of this task")
        return super().find_unread(typed) | (text if self.select("task.reader") else {})

    def perform(self) -> Result:
        """Score the checkpoint, and show or write the results."""
        from plmctl.use.asked_task import is_printed

        several = not isinstance(self.checkpoint, str) and len(self.checkpoint) > 1
        if self.provenance.dry_run:
            return self._as_predict().perform() if self.input is not None else self._foresee()
        asked = self.input is not None and several and not self.provenance.submission
        if (asked or self.by is not None) and not (self.perturb or self.fits):
            return self._predict()
        table = self._answer()
        if table is None:
            return 0
        # on standard error where predictions take standard output
        printed = is_printed(self.out, self.input, submission=self.provenance.submission)
        table.show(as_json=self.provenance.json, aside=printed)
        return table.flatten()

    def _foresee(self) -> Result:
        """Print the rows, the time and the memory of an evaluation, and return its costs."""
        from plmctl.artifacts.deployed import load_to_answer
        from plmctl.probes.base import RehearsedProbe
        from plmctl.tasks.linear_model import is_linear
        from plmctl.tasks.task import as_task
        from plmctl.use.asked_task import open_task

        names = (self.checkpoint,) if isinstance(self.checkpoint, str) else self.checkpoint
        if is_linear(Path(names[0]).expanduser()):
            found = self._rehearse(self._open_linear(names[0]))
        else:
            loaded, precision = load_to_answer(names[0], self.device, self.precision, self.plugins)
            part = open_task(loaded.source, self.task, self.provenance.keys, checkpoint=names[0])
            own = as_task(part)
            if isinstance(part, RehearsedProbe):
                found = part.rehearse(self._open(loaded, precision, names[0]))
            elif own is None or own.facts.ranks or len(names) > 1:
                allowed = "tasks with examples, and minimal pairs, of one checkpoint"
                raise UsageError(f"--dry-run: knows the time of {allowed}\n  fix: leave it out")
            else:
                found = self._rehearse(self._make_labeller(loaded, precision, own))
        found.tabulate().show(as_json=self.provenance.json)
        return found.costs

    def _rehearse(self, labeller: SingleLabeller) -> Rehearsal:
        """The costs of the answers to a split."""
        from plmctl.tasks.inference import ReadPieces
        from plmctl.use.asked_task import read_examples
        from plmctl.use.kept_results import name_result
        from plmctl.use.rehearsal import rehearse

        task = labeller.task
        name, examples = read_examples(task, self.split)
        what = f"{task.name}: {name_result(task, labeller.source, name)}"
        return rehearse(what, examples, partial(labeller.answer, name, read=ReadPieces()))

    @property
    def fits(self) -> bool:
        """Whether a decision is fitted, and kept in the checkpoint."""
        return bool(self.calibrate) or self.abstain is not None

    def _predict(self) -> Result:
        """Label texts by several models, as an earlier version did here."""
        self._warn()
        return self._as_predict().perform()

    def _as_predict(self) -> Predict:
        """The command that labels texts, with the same settings."""
        from plmctl.commands.predict import Predict

        settings = {name: self[name] for name in Predict._keys() if name in self}
        settings |= {"input": self.input or "-"}
        return Predict(**settings, provenance=self.provenance)

    def _warn(self) -> None:
        """Name the command that labels texts."""
        names, given = [*self._as_predict()], self.provenance
        words = [word for word in given.overrides if key_of(word).partition(".")[0] in names]
        options = ["--json"] if given.json else []
        line = f"{spell_line('predict', *words, *options)}{option(self.plugins)}"
        remark(f"plmctl eval input= goes in the next version\n  fix: {line}", WARN)

    def _answer(self) -> ScoreTable | None:
        """The results; None for files of a leader board."""
        from plmctl.knowledge.vector_files import find_static
        from plmctl.knowledge.vectors import find_vectors
        from plmctl.tasks.linear_model import is_linear
        from plmctl.use.asked_task import check_out

        names = (self.checkpoint,) if isinstance(self.checkpoint, str) else self.checkpoint
        if self.by is not None or len(names) > 1:
            why = "several checkpoints or tasks are scored on the texts as they stand"
            self._refuse_perturbed(why)
            self._refuse_unseen()
        if len(names) > 1:
            return self._evaluate_together(names)
        for find, answer in (find_vectors, self._rank_links), (find_static, self._measure_vectors):
            if found := find(names[0]):
                self._refuse_runtime("vectors need no other library")
                self._refuse_unseen()
                return answer(found)
        if self.out is not None:
            check_out(Path(self.out), self.overwrite, submission=self.provenance.submission)
        if is_linear(Path(names[0]).expanduser()):
            return self._score(self._open_linear(names[0]), names[0])[0]
        return self._evaluate_model(names[0])

    def _place_joined(self, checkpoints: Sequence[str]) -> Destination:
        """The file or folder for the answers of several checkpoints; ConfigError for neither."""
        from plmctl.tasks.predictions import STDOUT
        from plmctl.use.asked_task import Destination, check_out, is_printed
        from plmctl.use.ensemble import join_names

        submission = self.provenance.submission
        if self.out is not None:
            check_out(Path(self.out), self.overwrite, submission=submission)
        printed = is_printed(self.out, self.input, submission=submission)
        out = STDOUT if printed else Path(self.out or join_names(checkpoints))
        return Destination(out, self.overwrite, self.guard_cells)

    def _open_linear(self, checkpoint: str) -> SingleLabeller:
        """A linear model of words; ConfigError or UsageError for settings of other models."""
        from plmctl.use.labeller import open_labeller

        self._refuse_perturbed("a linear model is scored on the texts as they stand")
        if self.provenance.submission:
            raise UsageError("--submission: it is of a fine-tuned model\n  fix: leave it out")
        if self.input is not None:
            self._refuse_unseen()
        return open_labeller(checkpoint, self._as_predict().labelling)

    def _make_labeller(self, loaded: Loaded, precision: Precision, task: Task) -> ModelLabeller:
        """An opened model with its task, as the settings have it."""
        from plmctl.artifacts.kept_decision import read_decision
        from plmctl.config.build import plain
        from plmctl.use.labeller import ModelLabeller
        from plmctl.use.runtimes import open_runtime

        runtime = open_runtime(self.runtime, precision, self.plugins, loaded)
        kept, asked = read_decision(loaded.source.folder), plain(self.task or loaded.own_task())
        return ModelLabeller(loaded, task, asked, precision, self.batch_size, runtime, kept)

    def _measure_vectors(self, file: Path) -> ScoreTable:
        """The scores of a file of word vectors."""
        from plmctl.probes.base import VectorProbe

        part = None if self.task is None else build(self.task, {}, self.plugins, path="task")
        if isinstance(part, VectorProbe):
            return part.measure_vectors(file)
        given = ... if self.task is None else self.task.get("name", "...")
        allowed = "word_similarity or word_analogies: these are vectors of words, and no model"
        raise ConfigError("task", given, allowed, fix="task=word_similarity task.path=<lists>")

    def _rank_links(self, folder: Path) -> ScoreTable:
        """The scores of vectors of a graph; ConfigError for a task."""
        from plmctl.training.processes.world import device_of
        from plmctl.use.asked_task import Destination
        from plmctl.use.graph_evaluation import evaluate_vectors

        if self.task is not None:
            allowed = "null: vectors of a graph predict its links, and no other task"
            raise ConfigError("task", self.task.get("name", "..."), allowed, fix="leave it out")
        return evaluate_vectors(
            folder,
            self.split,
            path=self.data.path,
            out=None if self.out is None else Destination(Path(self.out), self.overwrite),
            device=device_of(self.device, "device"),
            batch_size=self.batch_size,
            plugins=self.plugins,
        )

    def _evaluate_model(self, checkpoint: str) -> ScoreTable | None:
        """Write the results of a model, and return its scores; None for a submission."""
        from plmctl.artifacts.deployed import load_to_answer
        from plmctl.tasks.task import as_task
        from plmctl.training.device.allocator import keep_freed_memory
        from plmctl.use.asked_task import ask_all, open_task
        from plmctl.use.submitting import submit_splits

        given = self.provenance
        loaded, precision = load_to_answer(checkpoint, self.device, self.precision, self.plugins)
        keep_freed_memory(precision.device)
        asked = self._find_board(loaded) if given.submission else self.task
        task = open_task(loaded.source, asked, given.keys, checkpoint=checkpoint)
        own = as_task(task)
        if given.submission:
            self._refuse_perturbed("a leader board asks for the texts as they stand")
        if own is None:
            self._refuse_perturbed(
                "only texts of a task of fine-tuning can be changed, not of this one"
            )
        elif own.columns.get("text") is None:
            self._refuse_perturbed("this task has no column with texts")
        labeller = self._make_labeller(loaded, precision, task)
        if not labeller.runtime.on_gpu and (own is None or own.facts.ranks):
            self._refuse_probe(own.name if own else self.task.get("name"), checkpoint)
        if (table := self.measure(loaded, precision, task, checkpoint)) is not None:
            return table
        if given.submission:
            ask_all(task, loaded.source, given.keys, split=self.split, checkpoint=checkpoint)
            submit_splits(self._place(loaded.source), loaded, task, **labeller.how)
            return None
        table, answered = self._score(labeller, checkpoint)
        return self._perturb(table, labeller, answered) if answered and self.perturb else table

    def _find_board(self, loaded: Loaded) -> Any:
        """The settings of the task with a leader board; None: those of the training count.

        They are those of the command line, or of plmctl's own task with the name and the class of
        the trained one.
        """
        from plmctl.runs.deciding import decide

        own, given = loaded.own_task(), self.provenance
        if self.task is not None or any(key.startswith("task.") for key in given.keys):
            return self.task
        words = (f"task={own.get('name')}", "checkpoint=x")
        with contextlib.suppress(UsageError):  # a task of another version or of a plug-in
            known = replace(given, overrides=words, submission=False)
            spec: Any = decide(known)
            return spec.task if spec.task["_target_"] == own.get("_target_") else None
        return None

    def _score(
        self, labeller: SingleLabeller, checkpoint: str
    ) -> tuple[ScoreTable, AnsweredSplit | None]:
        """(the scores of a split, or of texts, whose answers are written; these answers, those of a
        split alone).
        """
        from plmctl.tasks.trained_texts import leave_trained
        from plmctl.use.answering import keep_said
        from plmctl.use.asked_task import ask_all, name_file, read_examples, write_split
        from plmctl.use.kept_results import is_own_split, keep_result, list_files, name_result
        from plmctl.use.labelling import label_files
        from plmctl.use.predict import Told
        from plmctl.use.simple_models import compare_simple

        task, source, given = labeller.task, labeller.source, self.provenance
        whole = ask_all(task, source, given.keys, split=self.split, checkpoint=checkpoint)
        output = self._place(source)
        if self.input is not None and not (self.perturb or self.fits):
            self._warn()
            (table,) = label_files(labeller, [self.input], output, seed=self.seed)
            return table, None
        name, examples = read_examples(task, self.split, self.input)
        if self.only:
            examples, whole = leave_trained(source.home, examples)
        about: Any = {"new_texts": self.input is not None, "calibrated": self.calibrate}
        answered = labeller.answer_split(name, examples, whole=whole, abstain=self.abstain, **about)
        shown_as = name_result(task, source, name, self.input)
        shown_as += f"-{self.only}" if self.only else ""
        kept = replace(answered, name=shown_as if self.out is None else name)
        file = write_split(output, kept.name, examples, answered.predictions, self.input)
        own = self.input is None and is_own_split(task, source, name)
        if self.input is None:
            how: Any = {"only": self.only or ""}
            keep_result(
                output, kept.name, task, source, answered, labeller.how, given.overrides, **how
            )
        extra = {
            "task": task.name,
            "checkpoint": str(source.folder),
            "rows": len(answered.predictions),
            "file": list_some(list_files(examples), 3),
            "predictions": name_file(file),
            **keep_said({"runtime": Told(labeller.runtime.describe())}),
            **compare_simple(source, task, replace(answered, name=shown_as), file, own=own),
        }
        shown = answered.tabulate(task, extra, seed=self.seed)
        title = f"{task.name}: {shown_as}"
        return replace(shown, title=title, called={name: shown_as}), kept

    def _perturb(
        self, shown: ScoreTable, labeller: ModelLabeller, answered: AnsweredSplit
    ) -> ScoreTable:
        """The table of a split, with the scores of its changed texts, whose answers are written
        where they go to a folder.
        """
        from plmctl.tasks.predictions import is_file
        from plmctl.use.asked_task import write_results
        from plmctl.use.perturbing import score_perturbed

        if any(example.label is None for example in answered.examples):
            allowed = "null: without labels there is no score"
            raise ConfigError("perturb", list(self.perturb), allowed, fix="split=dev")
        perturbations = {
            kind: build(node, {}, self.plugins, path=f"perturb.{kind}")
            for kind, node in self.perturb.items()
        }
        scores, remarks, answers = score_perturbed(
            perturbations, labeller.loaded, labeller.task, answered, **labeller.how
        )
        extra, output = {**shown.extra, **remarks}, self._place(labeller.source)
        if not is_file(output.path):  # one file has the answers to the texts as they stand
            for kind, rows in answers.items():
                file = write_results(output, f"{answered.name}-{kind}", rows)
                extra[f"predictions of {kind}"] = str(file)
        return replace(shown, metrics=scores, extra=extra)

    def measure(
        self, loaded: Loaded, precision: Precision, part: Any, checkpoint: str
    ) -> ScoreTable | None:
        """The scores of a probe, or of a task that ranks a whole corpus; None for a task that reads
        the examples of a split.
        """
        from plmctl.probes.ranking import rank_corpus

        opened = self._open(loaded, precision, checkpoint)
        probe = declared(type(part)) == "probe"
        if probe or part.facts.ranks or self.input is not None or self.provenance.submission:
            self._refuse_unseen()
        if probe:
            scores: ScoreTable = part.measure(opened)
            if self.out not in (None, "-") and not Path(str(self.out)).exists():
                remark(f"out={self.out}: this task has scores alone, and wrote no file", WARN)
            return scores
        if not part.facts.ranks:
            return None
        return rank_corpus(opened, part, self.input, self._place(loaded.source))

    def _open(self, loaded: Loaded, precision: Precision, checkpoint: str) -> Opened:
        """The model with the settings that probes use."""
        from plmctl.probes.base import Opened

        return Opened(
            loaded,
            precision,
            checkpoint,
            split=self.split,
            data=self.data,
            batch_size=self.batch_size,
            format=self.format,
            noise=self.noise,
            out=self.out,
            overwrite=self.overwrite,
            given=self.provenance,
        )

    def _place(self, source: Source) -> Destination:
        """The file or folder for the answers of one model."""
        from plmctl.use.asked_task import Destination, choose_out

        given = self.provenance.submission
        out = choose_out(source, self.out, self.input, submission=given)
        run = source.run if self.out is None else None
        return Destination(out, self.overwrite, self.guard_cells, run)

    def _evaluate_together(self, checkpoints: Sequence[str]) -> ScoreTable | None:
        """The scores of the members and their ensemble, whose predictions are written; None for a
        submission.
        """
        from plmctl.tasks import inference
        from plmctl.tasks.capabilities import submit
        from plmctl.use.answering import (
            describe_decision,
            describe_refitted,
            keep_said,
            warn_of_bundles,
            warn_of_trained,
        )
        from plmctl.use.asked_task import name_file, write_for_board, write_split
        from plmctl.use.ensemble import join_members
        from plmctl.use.predict import ScoreTable, Told

        output = self._place_joined(checkpoints)
        if self.fits:
            allowed = "of one checkpoint, in which it is kept"
            fix = spell_setting("checkpoint", checkpoints[0])
            name = "calibrate" if self.calibrate else "abstain"
            raise ConfigError(name, self[name], allowed, fix=fix)
        splits: dict[str, list[Example]] = {}
        homes: dict[Path, None] = {}
        members = list(self._ask(checkpoints, splits, homes))
        task = members[0].task
        joined, decision = join_members(members, votes=self.joined == "votes")
        if self.provenance.submission:
            for name, predictions in joined.items():
                content, board = submit(task, predictions), task.submission[name]
                tell(write_for_board(output, board, content))
            return None
        ((name, examples),) = splits.items()
        if not name.startswith("train"):
            for home in homes:
                warn_of_trained(home, examples)
                warn_of_bundles(home, examples)
        file = write_split(output, name, examples, joined[name], self.input)
        scores = {}
        if inference.is_answered(examples):
            scores = {each.name: each.task.score(each.answers[name]) for each in members}
            scores[f"{self.joined} of {len(members)}"] = task.score(joined[name])
        extra: dict[str, Any] = {"task": task.name, "rows": len(examples)}
        extra["predictions"] = name_file(file)
        if decision is not None:
            mean = f"the mean of {len(members)} models: {decision.describe()}"
            extra |= describe_decision(decision, mean, joined[name])
            extra |= describe_refitted(decision.find_refitted(name, examples), task.metrics)
        extra |= keep_said({"files": Told("; ".join(task.remarks))})
        title = f"{task.name}: {name}"
        return ScoreTable(title, scores, extra, is_percent=task.is_percent)

    def _ask(
        self, checkpoints: Sequence[str], splits: dict[str, list[Example]], homes: dict[Path, None]
    ) -> Iterator[Member]:
        """The answers of several checkpoints to the examples of `splits`, which are read first;
        their folders are added to `homes`.
        """
        from plmctl.tasks.task import as_task
        from plmctl.training.device.precision import choose
        from plmctl.training.processes.world import device_of
        from plmctl.use.asked_task import ask_all, open_task, read_examples
        from plmctl.use.ensemble import ask_members
        from plmctl.use.runtimes import open_runtime
        from plmctl.use.submitting import read_boards

        keys = self.provenance.keys

        def open_member(loaded: Loaded, checkpoint: str) -> Task:
            task = as_task(open_task(loaded.source, self.task, keys, checkpoint=checkpoint))
            if task is None:
                allowed = "a task with labels: an ensemble is of fine-tuned models"
                fix = spell_setting("checkpoint", checkpoint)
                raise ConfigError("task", self.task.get("name"), allowed, fix=fix)
            ask_all(task, loaded.source, keys, split=self.split, checkpoint=checkpoint)
            homes[loaded.source.home] = None
            return task

        def read(task: Task) -> dict[str, list[Example]]:
            if self.provenance.submission:
                return read_boards(task)
            return dict([read_examples(task, self.split, self.input)])

        precision = choose(self.precision, device_of(self.device, "device"))
        return ask_members(
            checkpoints,
            open_member,
            read,
            splits,
            precision=precision,
            batch_size=self.batch_size,
            plugins=self.plugins,
            runtime=open_runtime(self.runtime, precision, self.plugins),
        )

    def _refuse_runtime(self, why: str) -> None:
        """ConfigError for another runtime than PyTorch."""
        from plmctl.use.runtimes import refuse_runtime

        refuse_runtime(self.runtime, self.plugins, why)

    def _refuse_probe(self, asked: str, checkpoint: str) -> None:
        """ConfigError for a question that only the weights of a model answer."""
        self._refuse_runtime(f"task={asked} asks the model in several ways")
        allowed = f"null: {checkpoint} has the answers of one task alone"
        raise ConfigError("task", asked, allowed, fix="the run that it is from")

    def _refuse_perturbed(self, why: str) -> None:
        """ConfigError for texts that are also scored when they are changed."""
        if self.perturb:
            raise ConfigError("perturb", list(self.perturb), f"null: {why}", fix="perturb=null")

    def _refuse_unseen(self) -> None:
        """ConfigError where rows that training has seen cannot be left out."""
        if self.only:
            allowed = "null: it leaves out labelled rows of a split that one model answers"
            raise ConfigError("only", self.only, allowed, fix="only=null")
