"""Predictions of one system as `plmctl compare` reads them: a run, or a file of plmctl or of
someone else; and the scores that they have.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.analysis.runs import read_baselines, read_result
from plmctl.analysis.scored import FOLDER, read_scored
from plmctl.artifacts.loading import find
from plmctl.core.errors import DataError, UsageError, did_you_mean, find_alike
from plmctl.core.spelling import spell, spell_line, spell_setting
from plmctl.core.terminal import remark_once
from plmctl.data import held_out
from plmctl.report.decided import find_decided, name_best, read_task
from plmctl.storage.paths import find_near
from plmctl.storage.reading import parse_json
from plmctl.tasks.readers.tag_spelling import describe_unmarked, respell
from plmctl.tasks.scores import metrics, rouge
from plmctl.tasks.scores import squad as squad_score
from plmctl.tasks.scores.below import CHOICE, READ, describe_one_answer, find_run, list_unbeaten
from plmctl.tasks.task import Task
from plmctl.text.tabular import cells_of, kind_of, objects_of
from plmctl.text.tokenizer import Tokenizer
from plmctl.use.calibrating import decide_by_kept
from plmctl.use.simple_models import find_simple_tests

FOLDERS = ("predictions", "eval")  # folders of a run, the first that has the split
SIDES = ("gold", "golds", "guess")  # the columns that are compared
LISTS = ("tags", "words")  # kinds whose rows are lists
PAIR = frozenset({"paradigm", "id", "good", "bad", "right"})  # the columns of task=minimal_pairs
LABELS = ("label", "labels", "tags")  # columns that often have the right answers
# the name of a column of examples that belong together
GROUP = re.compile(
    r"(?:^|[^a-z])(?:article|author|bundle|conversation|dialog|doc|group|paragraph|passage|session"
    r"|source|speaker|subject|thread|user)",
    re.IGNORECASE,
)
SURE = 0.8  # the likeness of a column that a fix may name
SUFFIXES = (".jsonl", ".csv", ".tsv")
Row = dict[str, Any]
Score = Callable[[Sequence[Mapping[str, Any]]], Mapping[str, float]]


@dataclass(frozen=True)
class ColumnNames:
    """The meaning of the columns or fields of a file."""

    gold: str = "gold"
    guess: str = "guess"
    id: str | None = None  # None: "id", where there is one, else the number of the row
    bundle: str | None = None  # None: "bundle", where there is one

    def __post_init__(self) -> None:
        if self.gold == self.guess:
            raise UsageError(
                f"--gold and --guess are both {self.gold}\n  fix: name two different columns"
            )


@dataclass(frozen=True)
class Predicted:
    """The predictions of one system.

    Args:
        rows: {"id", "gold" or "golds", "guess", ...} of each example.
        task: The task of its run, None of a file that lies in no run.
        decided: The decision that the checkpoint of the run has since then; "": the predictions as
            they stand in the file.
        choices: The validations on these examples, of which the best one chose the checkpoint; 0
            where they chose nothing.
        scored: The file and conditions of `plmctl eval` that are not the run's own; "" for none.
        unbeaten: A remark on models without pretraining that answer as well or better; "" for none.
        texts: A hash of the ids and texts of the rows; "" where it is not known.
    """

    file: Path
    rows: list[Row] = field(repr=False)
    task: Task | None = None
    decided: str = ""
    choices: int = 0
    scored: str = ""
    unbeaten: str = ""
    texts: str = ""

    @property
    def one_answer(self) -> str:
        """A remark on a system that gives one answer to all examples; else ""."""
        return describe_one_answer(self.rows)

    def describe(self) -> str:
        """The file, and what its answers are changed by."""
        about = [f"decided anew: {self.decided}"] if self.decided else []
        return ", ".join([str(self.file), *about, *filter(None, [self.scored])])


def read_predicted(
    place: Path, split: str, columns: ColumnNames, kind: str | None, plugins: Sequence[str] = ()
) -> Predicted:
    """The predictions of a run, a folder of them or a file; DataError for anything else."""
    file = _find_file(place, split)
    inside = kind_of(file) == ".jsonl" and file.parent.name in FOLDERS
    rows = _read_rows(file, columns, kind)
    task, run = None, (read_result(file.parent.parent) or {}) if inside else {}
    choices, scored, texts = (run.get(CHOICE) or {}).get(file.stem, 0), "", ""
    own = inside and file.parent.name == FOLDERS[0]
    if inside and (known := read_scored(file.parent.parent).get(file.stem)):
        choices, own = choices if known.own else 0, own or known.own
        texts = known.texts
        scored = known.describe(best=name_best(file.parent.parent))
    simple = find_run(file.parent) or find_run(file.parent.parent)
    home = simple or (file.parent.parent if inside else None)
    if home is not None and kind is None and (columns.gold, columns.guess) == ("gold", "guess"):
        task = read_task(home, plugins)
    if not rows:
        raise DataError("no predictions", file=file, fix="take a file with some")
    how = ""
    if task is not None and file.parent == place / FOLDERS[0] and (kept := find_decided(place)):
        (rows, how), scored = decide_by_kept(kept, task, rows), ""
    unbeaten = _find_unbeaten(file, rows, task) if own and task is not None else ""
    return Predicted(file, rows, task, how, choices, scored, unbeaten, texts)


def _find_unbeaten(file: Path, rows: Sequence[Row], task: Task) -> str:
    """The line of `finetune` on models without pretraining, on these predictions of its run."""
    run, split = file.parent.parent, file.stem
    simple = {name: known for name, known in read_baselines(run).items() if name == split}
    if not simple or not task.metrics:
        return ""
    tests, read = find_simple_tests(run, {split: rows}, task), (read_result(run) or {}).get(READ)
    how: Any = {"lower": task.directions.lower, "tests": tests, "read": read}
    return "; ".join(list_unbeaten({split: task.score(rows)}, simple, task.metrics[0], **how))


def find_common(places: Sequence[Path], split: str) -> Sequence[Path]:
    """The folders or files to compare, on the same rows. Runs may have scored different rows of a
    split. Then these are the results on rows that each of them has scored, which a line names.
    """
    known = [read_scored(place) if place.is_dir() else {} for place in places]
    if len({own[split].texts if split in own else None for own in known}) == 1:
        return places
    named = [
        {each.texts: name for name, each in own.items() if each.split == split and each.texts}
        for own in known
    ]
    both = [texts for texts in named[0] if all(texts in own for own in named)]
    if not both or any((place / FOLDERS[0] / f"{split}.jsonl").is_file() for place in places):
        return places
    names = [own[both[-1]] for own in named]
    found = [place / FOLDER / f"{name}.jsonl" for place, name in zip(places, names, strict=True)]
    remark_once(f"the same rows of {split} are in {' and '.join(map(str, found))}: these compare")
    return found


def refuse_pretrainings(places: Sequence[Path], split: str) -> None:
    """DataError where all are pretrainings without predictions of a split. It names what compares
    them: perplexity by token needs equal tokenizers.
    """
    for place in places:
        there = any((place / folder / f"{split}.jsonl").is_file() for folder in (*FOLDERS, "."))
        if there or not (place / held_out.FILE).is_file():
            return
    known = {Tokenizer.load(find(place) / "tokenizer").fingerprint for place in places}
    words = [f"checkpoint={','.join(spell(str(place)) for place in places)}"]
    words += ["data.path=TEXT", "run.dir=runs/compared"]
    how = (
        "they have one tokenizer, so perplexities of one text compare, without a p-value. Files of"
        " task=minimal_pairs (out=) compare with one"
    )
    fix = f"{spell_line('eval', '-m', 'task=lm', *words)} # TEXT: a file that no run has read"
    if len(known) > 1:
        how = (
            "they have different tokenizers, so their losses and perplexities by token do not"
            " compare. Bits per byte do, of causal models (task=lm); so do scores of one task"
        )
        fix = "fine-tune each of them on one task, and compare those runs"
    what = f"pretrainings have losses, and no predictions; {how}"
    raise DataError(what, file=", ".join(map(str, places)), fix=fix)


def _find_file(place: Path, split: str) -> Path:
    if place.is_file():
        if kind_of(place) not in SUFFIXES:
            allowed = ", ".join(SUFFIXES)
            raise DataError(f"its name does not end in one of {allowed}", file=place)
        return place
    if not place.is_dir():
        near = find_near(place, folders=False)
        hint = did_you_mean([near] if near else [])
        raise DataError(
            f"there is no such run or file{hint}",
            file=place,
            fix="" if near else "take a run of plmctl finetune, or a file of predictions",
            meant=near,
        )
    tried = [*(place / folder / f"{split}.jsonl" for folder in FOLDERS), place / f"{split}.jsonl"]
    if file := next((file for file in tried if file.is_file()), None):
        return file
    there = sorted(
        {each.stem for folder in tried for each in folder.parent.glob("*.jsonl")} - {"metrics"}
    )
    if there:
        run = [spell_line("eval", place, f"split={split}")]
        run = run if (place / "config.yaml").is_file() else []
        raise DataError(
            f"no predictions of the split '{split}'; there are those of {', '.join(there)}",
            file=place,
            fix=", or ".join([*run, f"--split {there[0]}"]),
        )
    if (place / held_out.FILE).is_file():
        what = "a pretraining has losses, and no predictions; a report has those of several runs"
        raise DataError(what, file=place, fix=spell_line("report", place))
    # without `out=` the answers of an exported folder do not lie in it
    asked = {"checkpoint": place, "split": split, "out": place / FOLDERS[1]}
    words = " ".join(spell_setting(key, value) for key, value in asked.items())
    what = "no predictions in it (predictions/*.jsonl, eval/*.jsonl)"
    raise DataError(what, file=place, fix=f"plmctl eval {words}")


def _read_rows(file: Path, columns: ColumnNames, kind: str | None) -> list[Row]:
    if kind_of(file) == ".jsonl":
        found = list(objects_of(file))
    else:
        (_, names), *cells = cells_of(file)
        found = []
        for line, row in cells:
            if len(row) != len(names):
                raise DataError(
                    f"{len(row)} columns, where the first line names {len(names)}",
                    file=file,
                    line=line,
                    fix="correct the line",
                )
            found.append((line, dict(zip(names, row, strict=True))))
    found = [(line, _answer_pair(row, file, line)) for line, row in found]
    rows = [_take(row, number, columns, file, line) for number, (line, row) in enumerate(found)]
    if kind_of(file) != ".jsonl":
        return _type_cells(rows, kind, file)
    sides = [name for name in SIDES if rows and name in rows[0]]
    if kind == "numbers":
        _make_numbers(rows, sides, file)
    if kind in LISTS and (odd := next((r for r in rows if not _has_lists(r, sides)), None)):
        what = f"{odd['guess']!r} of id {odd['id']} is no list of tags"
        raise DataError(what, file=file, fix="--as classes")
    return rows


def _answer_pair(row: Row, file: Path, line: int) -> Row:
    """A row of `task=minimal_pairs` with its acceptable sentence as "gold", the likelier one as
    "guess", and an id that names the paradigm, too; any other row as it is.
    """
    if not row.keys() >= PAIR or "gold" in row:
        return row
    if not _is_number(row["right"]):
        raise DataError(f"right is {row['right']!r}, no number", file=file, line=line)
    right = float(row["right"])
    guess = row["good"] if right == 1 else row["bad"]
    own = f"{row['paradigm']}/{row['id']}"
    return {**row, "id": own, "gold": row["good"], "guess": guess, "right": right}


def _take(row: Row, number: int, columns: ColumnNames, file: Path, line: int) -> Row:
    """The row with "id", "gold", "guess" and "bundle" under these names."""
    gold = "golds" if columns.gold == "gold" and "golds" in row else columns.gold
    asked = {"gold": gold, "guess": columns.guess, "id": columns.id, "bundle": columns.bundle}
    wanted = {option: name for option, name in asked.items() if name is not None}
    if missing := {option: name for option, name in wanted.items() if name not in row}:
        near = {option: find_alike(name, row, least=SURE) for option, name in missing.items()}
        if "gold" in near:  # `predict` keeps the labels of its input under their own name
            near["gold"] = near["gold"] or [name for name in LABELS if name in row]
        fix = (f"--{option} {found[0] if found else '<column>'}" for option, found in near.items())
        meant = did_you_mean(found[0] for found in near.values() if found)
        what = f"no column {' and no column '.join(missing.values())}; found {', '.join(row)}"
        raise DataError(f"{what}{meant}", file=file, line=line, fix=" ".join(fix))
    if row[gold] is None or row[gold] == "":
        what = "it has no gold label, without which nothing can be compared"
        raise DataError(what, file=file, line=line)
    named_so = {option: row[column] for option, column in wanted.items()}
    if gold == "golds":
        del named_so["gold"]
    own = str(named_so.get("id", row.get("id", number)))
    return {**row, **named_so, "id": own}


def _type_cells(rows: list[Row], kind: str | None, file: Path) -> list[Row]:
    """Cells of a table are texts: numbers and lists are made of them where `kind` says so, or where
    they all look so.
    """
    sides = [name for name in SIDES if rows and name in rows[0]]
    for name in sides:
        cells = [row[name] for row in rows]
        if all(cell.startswith("[") and cell.endswith("]") for cell in cells):
            for row in rows:
                row[name] = _parse(row[name], file)
        elif kind in LISTS:
            for row in rows:
                row[name] = row[name].split()
    values = [row[name] for row in rows for name in sides]
    decimal = all(isinstance(v, str) and _is_number(v) for v in values) and any(
        "." in value for value in values
    )
    if kind == "numbers" or (kind is None and decimal):
        _make_numbers(rows, sides, file)
    return rows


def _make_numbers(rows: Sequence[Row], sides: Sequence[str], file: Path) -> None:
    """Put numbers into rows; DataError for another value."""
    for row, name in product(rows, sides):
        if not _is_number(row[name]):
            what = f"{str(row[name])!r} of id {row['id']} is not a number"
            raise DataError(what, file=file, fix="--as classes")
        row[name] = float(row[name])


def _has_lists(row: Row, sides: Sequence[str]) -> bool:
    return all(isinstance(row[name], list) for name in sides)


def _parse(cell: str, file: Path) -> Any:
    try:
        return parse_json(cell)
    except ValueError as error:
        raise DataError(f"not JSON: {cell[:60]!r}", file=file) from error


def _is_number(text: Any) -> bool:
    try:
        return math.isfinite(float(text))
    except (TypeError, ValueError):
        return False


def find_group(left: Sequence[Row], right: Sequence[Row]) -> str:
    """The column of examples that belong together, by its name; "" without one. Both sides have the
    same values, and some of them several times.
    """
    for name in filter(GROUP.search, [key for key in left[0] if key not in (*SIDES, "id")]):
        first, second, gold = (
            [str(row.get(key)) for row in rows]
            for rows, key in ((left, name), (right, name), (left, "gold"))
        )
        if first == second != gold and 1 < len({*first}) < len(first):
            return name
    return ""


# --- what files without a task are scored by


def find_kind(rows: Sequence[Row]) -> str:
    """One of `KINDS`, by what stands in the rows."""
    first = rows[0]
    if first.keys() >= PAIR:
        return "pairs"
    if "golds" in first:
        return "answers"
    if isinstance(first["gold"], list):
        if any(len(row["gold"]) != len(row["guess"]) for row in rows):
            return "classes"  # sets of labels, each a class
        return "words" if describe_unmarked(_tags_of(rows)) else "tags"
    return "numbers" if isinstance(first["gold"], float) else "classes"


def _score_classes(rows: Sequence[Mapping[str, Any]], positive: str | None) -> dict[str, float]:
    gold, guess = [str(row["gold"]) for row in rows], [str(row["guess"]) for row in rows]
    return {name: score(gold, guess) for name, score in metrics.by_name(positive).items()}


def _score_numbers(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    gold, guess = [float(row["gold"]) for row in rows], [float(row["guess"]) for row in rows]
    return {name: score(gold, guess) for name, score in metrics.CORRELATIONS.items()}


def respell_tags(rows: Sequence[Row], others: Sequence[Row]) -> list[Row]:
    """`rows` with the marks of their tags as `B-PER` and `O`, by the tags of both files; DataError
    if these mark no entities.
    """
    known = set(_tags_of([*rows, *others]))
    if what := describe_unmarked(known):
        raise DataError(what.partition(";")[0], fix="--as words")
    named = dict(zip(known, respell([*known]), strict=True))
    return [
        {**row, **{side: [named[tag] for tag in row[side]] for side in ("gold", "guess")}}
        for row in rows
    ]


def _tags_of(rows: Sequence[Row]) -> list[str]:
    return [str(tag) for row in rows for side in ("gold", "guess") for tag in row[side]]


def _flatten(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    gold, guess = ([str(tag) for row in rows for tag in row[side]] for side in ("gold", "guess"))
    return gold, guess


def _score_tags(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    gold, guess = [row["gold"] for row in rows], [row["guess"] for row in rows]
    accuracy = metrics.accuracy(*_flatten(rows))
    return {**metrics.entity_scores(gold, guess), "accuracy": accuracy}


def _score_words(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    flat = _flatten(rows)
    return {"accuracy": metrics.accuracy(*flat), "macro_f1": metrics.macro_f1(*flat)}


def _score_texts(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    golds, guesses = [_golds(row) for row in rows], [str(row["guess"]) for row in rows]
    return {name: rouge.mean(name, golds, guesses) for name in rouge.METRICS}


def _score_answers(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    found = [{**row, "golds": _golds(row)} for row in rows]
    return squad_score.score_v1(found, overlap="characters")  # a score for Chinese texts


def prepare(kind: str, left: Sequence[Row], right: Sequence[Row]) -> list[list[Row]]:
    """The rows of both sides as the scores of a kind read them; DataError for lists of tags of
    unlike lengths.
    """
    lists = [*left, *right] if kind in LISTS else []
    if odd := next((row for row in lists if len(row["gold"]) != len(row["guess"])), None):
        counts = f"{len(odd['gold'])} right tags and {len(odd['guess'])} guessed ones"
        raise DataError(f"id {odd['id']} has {counts}", fix="--as classes")
    if kind == "tags":
        return [respell_tags(left, right), respell_tags(right, left)]
    return weigh_pairs(left, right) if kind == "pairs" else [[*left], [*right]]


def weigh_pairs(*sides: Sequence[Row]) -> list[list[Row]]:
    """Rows of minimal pairs with their "weight" in `accuracy`, the mean over paradigms.

    It is `N / (k n)` for each of the n pairs of a paradigm, with N pairs in k paradigms.
    """
    sizes = Counter(_read_pair(row)["paradigm"] for rows in sides for row in rows)
    weight = {name: sizes.total() / (len(sizes) * n) for name, n in sizes.items()}
    return [[{**row, "weight": weight[row["paradigm"]]} for row in rows] for rows in sides]


def _read_pair(row: Row) -> Row:
    if not row.keys() >= PAIR:
        raise DataError(f"id {row['id']} is no row of minimal pairs", fix="--as classes")
    return row


def _score_pairs(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """`accuracy`, the mean over paradigms, and `pairs`, the share of all."""
    right, weight = (np.array([row[name] for row in rows]) for name in ("right", "weight"))
    return {"accuracy": float(right @ weight / weight.sum()), "pairs": float(right.mean())}


def _golds(row: Mapping[str, Any]) -> list[str]:
    golds = row.get("golds", row.get("gold"))
    return golds if isinstance(golds, list) else [str(golds)]


KINDS: dict[str, Score] = {
    "numbers": _score_numbers,
    "tags": _score_tags,
    "words": _score_words,
    "answers": _score_answers,
    "pairs": _score_pairs,
    "texts": _score_texts,
}
KIND_NAMES = ("classes", *KINDS)


def score_by_kind(kind: str, positive: str | None = None) -> Score:
    """The scores of files by what stands in them: one of `KIND_NAMES`."""
    return partial(_score_classes, positive=positive) if kind == "classes" else KINDS[kind]
