"""The files and conditions of the results in `eval/` of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from plmctl.core.errors import list_some
from plmctl.core.terminal import counted
from plmctl.storage.atomic import write_json
from plmctl.storage.reading import parse_json

FOLDER, FILE = "eval", "scored.json"
DIGITS = 12  # the length of a hash in sentences


@dataclass(frozen=True)
class ScoredFiles:
    """A result of `plmctl eval`.

    Args:
        split: The name of the split; `test` of another file `test.csv`, too.
        own: Whether the rows are those of a split of the run.
        files: {path: its SHA-256}.
        only: The rows that count: "unseen", or "" for all.
        settings: The settings of the task on the command line, without the path.
        checkpoint: The folder of the weights.
        decision: The fitted decision of the checkpoint, in words.
        answered: The rows that the decision answers, by `measure_answered`, and its verdict on the
            goal; empty without a bound of unsure.
        texts: A hash of the ids and texts of the rows; "" of an earlier version.
        runtime: The library of the computation, "" for PyTorch.
        time: The end of the evaluation.
    """

    split: str
    own: bool
    files: Mapping[str, str]
    rows: int
    only: str = ""
    settings: Sequence[str] = ()
    checkpoint: str = ""
    decision: str = ""
    answered: Mapping[str, Any] = field(default_factory=dict)
    texts: str = ""
    precision: str = "fp32"
    runtime: str = ""
    time: str = field(default="", compare=False)

    def describe(self, *, public: bool = False, best: str = "") -> str:
        """The file and conditions that differ from those of a run's own split; "" for none.

        Args:
            public: Whether folders of the author stay out.
            best: The checkpoint of the run, which needs no word.
        """
        parts = []
        if not self.own:
            named = [
                f"{Path(file).name if public else file} (SHA-256 {known[:DIGITS]})"
                for file, known in self.files.items()
            ]
            parts.append(
                f"{counted(self.rows, 'row')} of {list_some(named, 3)}, no file of the run"
            )
        parts += [f"only={self.only}"] if self.only else []
        parts += [" ".join(self.settings)] if self.settings else []
        parts += [f"checkpoint {self.checkpoint}"] if best not in ("", self.checkpoint) else []
        parts += [self.precision] if self.precision != "fp32" else []
        parts += [self.runtime] if self.runtime else []
        return ", ".join(parts)


def keep_scored(run: Path, name: str, scored: ScoredFiles) -> None:
    """Record the files and conditions of `eval/<name>.jsonl` in a run."""
    known = {each: asdict(own) for each, own in read_scored(run).items()}
    write_json(run / FOLDER / FILE, {**known, name: asdict(scored)})


def read_scored(run: Path) -> dict[str, ScoredFiles]:
    """{name of the result: its files and conditions}; results of an earlier version have none,
    nor where the file is damaged.
    """
    try:
        known = parse_json((run / FOLDER / FILE).read_text(encoding="utf-8"))
        return {name: ScoredFiles(**own) for name, own in known.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def find_tested(run: Path) -> Path | None:
    """The answers to test that `plmctl eval` left in a run: to its own test, else to the newest
    other file for tests. None without any, or where training has scored test itself.
    """
    if (run / "predictions/test.jsonl").is_file():
        return None
    own = run / FOLDER / "test.jsonl"
    if own.is_file():
        return own
    known = {run / FOLDER / f"{name}.jsonl": each for name, each in read_scored(run).items()}
    others = [file for file, each in known.items() if each.split == "test" and file.is_file()]
    others = [file for file in others if not known[file].only]
    return max(others, key=lambda file: known[file].time, default=None)
