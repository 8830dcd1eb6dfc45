"""`plmctl attack`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from plmctl.config.build import MISSING, build, class_of
from plmctl.config.command import About, Command, Result
from plmctl.config.schema import TaskUser
from plmctl.core.errors import ConfigError
from plmctl.core.locate import parameters
from plmctl.core.rounding import round_floats
from plmctl.core.values import Batch, Count, Whole
from plmctl.storage.gate import own

if TYPE_CHECKING:
    from plmctl.artifacts.loading import Loaded
    from plmctl.attack.base import AttackSearch, Constraint, WordCandidates
    from plmctl.training.device.precision import Precision


@dataclass(frozen=True)
class Attack(TaskUser, Command):
    """Change words of texts until a fine-tuned model answers otherwise.

    Candidates for words, constraints on changed texts and the search are parts. All examples are
    attacked side by side, and the model reads no text twice.
    """

    about = About(
        "attack",
        place=82,
        examples=(
            "plmctl attack checkpoint=runs/sst2 rows=20 constraint.similarity.least=0.5",
            "plmctl attack checkpoint=runs/sst2 rows=20 attack_candidates=letters",
        ),
        bare="checkpoint",
        metavar="RUN",
        options="json print_config multirun config_dir plugin",
        slots="attack_candidates constraint attack_search runtime",
    )

    checkpoint: str = MISSING  # a model that was fine-tuned on classes of texts
    task: Any = None  # null: the one the checkpoint was fine-tuned on
    split: str = "dev"  # split whose examples are attacked, where the model answers right
    rows: Count | None = 200  # first rows of the split to attack; null: all
    field: str = "text"  # text of an example to change: text, text2
    # the words of Chinese texts: jieba, jieba_hmm (traditional), or a plugin's text -> (start,
    # end); null: each character
    segment: str | None = None
    attack_candidates: Any = MISSING  # source of words that may replace a word
    # constraints on a changed text: [changed_once,similarity]; [] or null: none
    constraint: Any = None
    attack_search: Any = MISSING  # words to replace, and their order
    # library that computes the answers to changed texts: torch, onnx, openvino, auto; null: torch
    runtime: Any = None
    # a run, a checkpoint or a Hugging Face folder that predicts masked tokens, for masked_lm
    writer: str | None = None
    # model whose vectors of texts similarity compares; null: checkpoint
    embedder: str | None = None
    # a .csv, .tsv or .jsonl file, an example in each line, or a folder of them, where earlier ones
    # are kept; null: attack/ in the run
    out: str | None = None
    overwrite: bool = False  # replace such a file, or an earlier one in the folder
    # put a ' before texts that a spreadsheet would run (=, +, -, @), in tables that are written
    guard_cells: bool = True
    batch_size: Batch = 64  # texts that the model reads at once
    window: Count = 64  # examples that are attacked side by side
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto: a GPU where there is one
    # bf16, fp16: three digits; auto: as training chooses
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"
    seed: Whole = 0  # seed of random slips

    def perform(self) -> Result:
        """Attack the examples that the model answers right; print and write what happens."""
        from plmctl.artifacts.loading import load_for
        from plmctl.attack.together import AskedOnce
        from plmctl.text.segment import find as find_segmenter
        from plmctl.use import asked_task, attacking
        from plmctl.use.answering import keep_said
        from plmctl.use.kept_results import name_result
        from plmctl.use.predict import ScoreTable, Told
        from plmctl.use.runtimes import open_runtime

        if self.out is not None:
            asked_task.check_out(Path(self.out), self.overwrite)
        segment = find_segmenter(self.segment, self.plugins, "segment") if self.segment else None
        loaded, precision = load_for(self.checkpoint, self.device, self.precision, self.plugins)
        keys = self.provenance.keys
        task = asked_task.open_task(loaded.source, self.task, keys, checkpoint=self.checkpoint)
        examples = attacking.read_attacked(task, self.split, self.field, self.rows)
        how: dict[str, Any] = {"field": self.field, "batch_size": self.batch_size}
        how |= {"runtime": (runtime := open_runtime(self.runtime, precision, self.plugins))}
        victim = attacking.Victim(loaded, task, precision, examples, segment=segment, **how)
        parts = self.build_parts(loaded, precision)
        started, model = time.perf_counter(), AskedOnce(victim.score)
        rows = attacking.attack_examples(victim, model, *parts, window=self.window)
        speed = model.answered / max(time.perf_counter() - started, 1e-9)
        out = Path(self.out) if self.out else own(loaded.source.run or Path()) / "attack"
        output = asked_task.Destination(out, self.overwrite, self.guard_cells)
        name = self.split if self.out else name_result(task, loaded.source, self.split)
        file = asked_task.write_results(output, name, round_floats(rows))
        extra = {
            "task": task.name,
            "checkpoint": str(loaded.source.folder),
            "rows": len(rows),
            "texts that the model read": Told(
                f"{model.answered:,}, of {model.asked:,} queries", model.answered
            ),
            "texts a second": Told(f"{speed:.0f}", speed),
            "attacks": asked_task.name_file(file),
        }
        extra |= keep_said({"runtime": Told(runtime.describe())})
        if unchanged := attacking.explain_unchanged(rows):
            extra["unchanged"] = Told(unchanged)
        table = ScoreTable(f"{task.name} under attack", {self.split: attacking.sum_up(rows)}, extra)
        table.show(as_json=self.provenance.json, aside=asked_task.is_printed(self.out))
        return 0

    def build_parts(
        self, loaded: Loaded, precision: Precision
    ) -> tuple[WordCandidates, list[Constraint], AttackSearch]:
        """The three parts of an attack on a loaded model."""
        from plmctl.artifacts.loading import load
        from plmctl.use.attacking import make_embed

        plugins = self.plugins

        def load_other(path: str) -> Loaded:
            other = load(path, plugins=plugins)
            other.model.to(precision.device)
            return other

        given: dict[str, Any] = {"model": loaded.model, "tokenizer": loaded.tokenizer}
        if "writer" in parameters(class_of(self.attack_candidates, plugins)):
            if self.writer is None:
                allowed, fix = "a masked language model, which proposes words", "writer=runs/<bert>"
                raise ConfigError("writer", None, allowed, fix=fix)
            other = load_other(self.writer)
            given |= {"writer": other.model, "writer_tokenizer": other.tokenizer}
        elif self.writer is not None:
            allowed = "null: these candidates come from elsewhere"
            raise ConfigError("writer", self.writer, allowed, fix="attack_candidates=masked_lm")
        candidates = build(self.attack_candidates, given, plugins, path="attack_candidates")
        embedder = self.embedder
        embed = make_embed(
            (lambda: loaded) if embedder is None else partial(load_other, embedder),
            batch_size=self.batch_size,
            precision=precision,
        )
        constraints = [
            build(node, {"embed": embed}, plugins, path=f"constraint.{name}")
            for name, node in (self.constraint or {}).items()
        ]
        return candidates, constraints, build(self.attack_search, {}, plugins, path="attack_search")
