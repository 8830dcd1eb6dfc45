"""`plmctl predict`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from plmctl.config.build import MISSING
from plmctl.config.command import About, Command, Result
from plmctl.config.schema import TaskUser
from plmctl.core.errors import ConfigError
from plmctl.core.values import Batch, Count, Rate

if TYPE_CHECKING:
    from plmctl.use.asked_task import Destination
    from plmctl.use.labeller import Labeller, LabellerSettings


@dataclass(frozen=True)
class Predict(TaskUser, Command):
    """Label new texts with a fine-tuned model.

    The texts are files of any length, or a stream. A stopped command continues where it was when it
    is started again.
    """

    about = About(
        "predict",
        place=85,
        examples=(
            "plmctl predict runs/sst2 input=README.md out=labelled.csv",
            "plmctl predict runs/sst2 input=glue/SST-2/*.tsv out=labelled",
        ),
        bare="checkpoint",
        metavar="RUN",
        options="json print_config dry_run config_dir plugin",
        slots="task runtime",
    )

    # a run, or its simple model: runs/x/baselines/words; several of one task: an ensemble
    checkpoint: str | tuple[str, ...] = MISSING
    # rule that joins several models: the mean of their probabilities, or one vote each
    joined: Literal["mean", "votes"] = "mean"
    # column of `input` that names the model for a row, where several models share one base and each
    # has its own task; null: an ensemble
    by: str | None = None
    task: Any = None  # null: the one the checkpoint was fine-tuned on
    runtime: Any = None  # library of the computation: torch, onnx, openvino, auto; null: torch
    # lines, or a .csv, .tsv, .jsonl or .parquet table, or several: [a.csv,b.csv], news/*.csv; -:
    # standard input, whose labels are printed as its lines come
    input: str | tuple[str, ...] = MISSING
    # least probability of an answer, of an ensemble its mean; rows below it are `unsure`; null: the
    # fitted one of eval abstain=, else none
    unsure_below: Rate | None = None
    # labels to write for each text, the likeliest first, with their probabilities: columns
    # top.1.label, top.1.probability; null: the probabilities of all labels
    top: Count | None = None
    # a .csv, .tsv or .jsonl file of predictions, or a folder with a file for each file of texts,
    # where earlier ones are kept; -: standard output; null: that for input=-, else eval/ in the
    # run, of a model without one eval/<its name>
    out: str | None = None
    overwrite: bool = False  # replace such a file, or an earlier one in the folder
    # put a ' before texts that a spreadsheet would run (=, +, -, @), in tables that are written
    guard_cells: bool = True
    batch_size: Batch = 32  # texts that the model reads at the same time
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a GPU where there is one
    # bf16, fp16: three digits; auto: as training chooses
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"
    seed: int = 0  # seed of the intervals, where all texts have answers

    def perform(self) -> Result:
        """Label all texts, and print remarks on each file."""
        from plmctl.use.asked_task import is_printed
        from plmctl.use.labelling import label_files, rehearse_files
        from plmctl.use.texts_found import find_texts, refuse_outputs

        if self.by is not None:
            return self._label_by_task(self.by)
        files = find_texts(self.input)
        if self.out is not None:
            refuse_outputs(Path(self.out), files, overwrite=self.overwrite)
        labeller, output = self._open(files)
        if self.provenance.dry_run:
            for each in rehearse_files(labeller, files):
                each.show(as_json=self.provenance.json)
            return 0
        refuse_outputs(output.path, files, overwrite=self.overwrite)
        printed = is_printed(str(output.path), files[0])
        for table in label_files(labeller, files, output, seed=self.seed, top=self.top):
            table.show(as_json=self.provenance.json, aside=printed)
        return 0

    def _open(self, files: Sequence[str]) -> tuple[Labeller, Destination]:
        """(the model or the models, where the answers go)."""
        from plmctl.tasks.predictions import STDOUT
        from plmctl.use.asked_task import Destination, choose_out, is_printed
        from plmctl.use.ensemble import join_names
        from plmctl.use.labeller import open_ensemble, open_labeller

        several, run = () if isinstance(self.checkpoint, str) else self.checkpoint, None
        if len(several) > 1:
            labeller: Labeller = open_ensemble(
                several, self.labelling, votes=self.joined == "votes"
            )
            printed = is_printed(self.out, files[0])
            out = STDOUT if printed else Path(self.out or join_names(several))
        else:
            name = self.checkpoint if isinstance(self.checkpoint, str) else several[0]
            labeller = model = open_labeller(name, self.labelling)
            out = choose_out(model.source, self.out, files[0])
            run = model.source.run if self.out is None else None
        return labeller, Destination(out, self.overwrite, self.guard_cells, run)

    @property
    def labelling(self) -> LabellerSettings:
        """The settings of the models."""
        from plmctl.use.labeller import LabellerSettings

        return LabellerSettings(
            asked=self.task,
            keys=self.provenance.keys,
            device=self.device,
            precision=self.precision,
            batch_size=self.batch_size,
            runtime=self.runtime,
            plugins=self.plugins,
            unsure_below=self.unsure_below,
        )

    def _label_by_task(self, by: str) -> Result:
        """Answer the rows of a table, each by its own checkpoint; ConfigError for settings that
        exclude `by`.
        """
        from plmctl.tasks.predictions import NAMED
        from plmctl.text.tabular import kind_of
        from plmctl.training.device.precision import choose
        from plmctl.training.processes.world import device_of
        from plmctl.use.asked_task import Destination, check_out, is_printed
        from plmctl.use.by_task import label_by_task
        from plmctl.use.ensemble import join_names
        from plmctl.use.runtimes import refuse_runtime

        why = "several tasks share one backbone in PyTorch"
        refuse_runtime(self.runtime, self.plugins, why)
        file = Path(self.input if isinstance(self.input, str) else self.input[0])
        if isinstance(self.checkpoint, str) or len(self.checkpoint) < 2:
            allowed = "null: one checkpoint answers all rows"
            raise ConfigError("by", by, allowed, fix="checkpoint=[<a run>,<another>]")
        if self.task is not None:
            allowed = "null: each checkpoint has a task of its own"
            raise ConfigError("task", self.task.get("name"), allowed, fix="leave it out")
        for name, why in (
            ("unsure_below", "eval abstain= fits one for each checkpoint"),
            ("top", "several tasks have no labels in common"),
        ):
            if self[name] is not None:
                raise ConfigError(name, self[name], f"null: {why}", fix="leave it out")
        if kind_of(file) not in NAMED:
            allowed = f"a table with names of columns ({', '.join(NAMED)}), of which by={by} is one"
            raise ConfigError("input", str(file), allowed, fix="input=mixed.csv")
        if self.out is not None:
            check_out(Path(self.out), self.overwrite)
        out = Path(self.out or join_names(self.checkpoint))
        table = label_by_task(
            self.checkpoint,
            file,
            by,
            output=Destination(out, self.overwrite, self.guard_cells),
            precision=choose(self.precision, device_of(self.device, "device")),
            batch_size=self.batch_size,
            plugins=self.plugins,
        )
        printed = is_printed(self.out, str(file))
        table.show(as_json=self.provenance.json, aside=printed)
        return 0
