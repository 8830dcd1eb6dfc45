"""The fine-tuned models of `plmctl eval`: the task of a checkpoint, the examples, and where
predictions are written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from plmctl.artifacts.assemble import build_model, longest, without_weights
from plmctl.artifacts.label_rows import count_rows, facts_of, find_order, labels_of, name_rows
from plmctl.artifacts.loading import Loaded, Source
from plmctl.artifacts.model_facts import framing, reading
from plmctl.config.build import build, class_of, plain
from plmctl.config.spec import Part
from plmctl.core.errors import ConfigError, DataError
from plmctl.core.parts import declared
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import WARN, remark
from plmctl.heads.base import language_heads
from plmctl.storage.atomic import refuse_existing
from plmctl.storage.earlier import keep_earlier
from plmctl.storage.gate import own
from plmctl.storage.paths import ENDINGS
from plmctl.storage.reading import read_json
from plmctl.storage.resumable import RECORD
from plmctl.tasks.facts import TaskFacts
from plmctl.tasks.predictions import (
    FILES,
    STDOUT,
    describe_doubled,
    describe_renamed,
    is_file,
    join_columns,
    predictions_file,
    submission_file,
    write_rows,
    write_submission,
)
from plmctl.tasks.readers.label_codes import read_codes
from plmctl.tasks.record import Example
from plmctl.tasks.splits import Splits
from plmctl.tasks.task import Task, as_task
from plmctl.tasks.trained_texts import is_trained_part, read_trained
from plmctl.tasks.unlabelled import read_unlabelled
from plmctl.text.tabular import TableSpelling, spelling_of

DIVIDING = {"task.dev_share", "task.test_share", "task.folds"}  # settings that hold a part out
ALSO = {"valid": "dev", "validation": "dev"}  # other words for the default split
# the settings of a task that training decided; they count in evaluation whichever task it is
DECIDED = (
    *("label_names", "joiner", "scheme", "crf"),
    *("max_length", "source_template", "target_template"),
)

MERGED_BY = "task.reader.merged_by"  # a table of labels
LANGUAGES = ("source_language", "target_language")  # count where an evaluation names none
BOARD = ("submission", "keyed")  # the files that a leader board wants
PARTS = ("layout", "answer")  # the values of a task that make the rows and the head


def describe_model(loaded: Loaded | Source, plugins: Sequence[str]) -> dict[str, Any]:
    """The facts about a model that its task needs."""
    return {
        "vocab": loaded.vocab,
        "trained_length": longest(loaded.config),
        **reading(loaded.config, plugins),
    }


@dataclass(frozen=True)
class Destination:
    """A file, a folder or standard output, for rows.

    Args:
        overwrite: Whether to replace earlier files, which otherwise go to `earlier/` in a folder.
        guarded: Whether to put a ' before texts that a spreadsheet would run.
        run: The run whose folder of results it is; None: the folder is the user's.
    """

    path: Path
    overwrite: bool = False
    guarded: bool = True
    run: Path | None = None


def open_task(source: Source, asked: Any, given: Collection[str], *, checkpoint: object) -> Any:
    """The task or the probe that `choose_task` finds for a model."""
    node = choose_task(source, asked, given, checkpoint=checkpoint)
    return make_task(node, source, given)


def make_task(node: Mapping[str, Any], source: Source, given: Collection[str]) -> Any:
    """The task or the probe of these settings, for a model; `given`: named on the command line."""
    opened = build(node, describe_model(source, source.plugins), source.plugins, path="task")
    if (task := as_task(opened)) is not None:
        task.splits.name_columns(given)
    return opened


def ask_all(
    task: Task, source: Source, given: Collection[str], *, split: str, checkpoint: object
) -> str:
    """Hold no dev set out of files that the model was not trained on, unless a setting names one.

    A file is the run's own if its part for training has all texts of the run. Without hashes of
    texts, the path decides.

    Args:
        task: The task, which is changed.
        split: The split to score.
        checkpoint: The model as the command line names it.

    Returns:
        A remark, or "".
    """
    trained_on = source.own_task().get("path")
    if task.splits.path == trained_on or DIVIDING & {*given}:
        return ""
    parts, asked = task.splits.divided, ALSO.get(split, split)
    trained = read_trained(source.home) if asked in parts else None
    if trained is not None and is_own(trained, task.splits):
        return ""
    task.splits = task.splits.whole()
    if asked == "train" or asked not in parts:
        return ""
    if trained is not None:
        file = task.splits.path
        return f"all of {file} is scored: it is another file than {checkpoint} was trained on"
    texts = "" if trained_on is None else f"{trained_on} is its file, without hashes of texts; "
    return (
        f"all of {task.splits.path} is scored: {checkpoint} does not say what it was trained on;"
        f" {texts}if that was this file, task.{asked}_share={parts[asked]:g} scores what plmctl"
        " finetune held out"
    )


def is_own(trained: np.ndarray, splits: Splits) -> bool:
    """Whether a run was trained on the part for training of a file that has a part for dev, too."""
    with contextlib.suppress(DataError):  # one of the parts is empty
        return all(map(splits.has, splits.divided)) and is_trained_part(
            trained, splits.read("train")
        )
    return False


def read_examples(task: Task, split: str, texts: str | None = None) -> tuple[str, list[Example]]:
    """(the name of the split, its examples), or those of the file `texts`."""
    if texts is not None:
        return read_unlabelled(task, texts)
    name = ALSO.get(split, split)
    if task.splits.path is None:
        raise ConfigError("task.path", ..., "must be given", fix="task.path=<a folder or a file>")
    return name, task.read(name)


def write_split(
    destination: Destination,
    name: str,
    examples: Sequence[Example],
    predictions: Sequence[dict[str, Any]],
    texts: str | None = None,
) -> Path:
    """Write predictions; in a file, or for the file `texts`, with the columns of the examples.

    Returns:
        The file.
    """
    if is_file(destination.path) or texts is not None:
        rows, names = join_columns(texts, examples, predictions)
        return write_joined(destination, name, rows, names, examples, texts)
    return write_results(destination, name, predictions)


def write_joined(
    destination: Destination,
    name: str,
    rows: Collection[dict[str, Any]],
    names: Mapping[str, str],
    first: Sequence[Example],
    texts: str | None = None,
) -> Path:
    """Write rows whose predictions have these names, of which the examples are the `first`; return
    the file.
    """
    tell_renamed(names, first, texts)
    source = Path(texts or (first[0].place.rpartition(":")[0] if first else ""))
    spelling = spelling_of(source) if texts is not None or source.is_file() else None
    return write_results(destination, name, rows, spelling)


def tell_renamed(names: Mapping[str, str], first: Sequence[Example], texts: str | None) -> None:
    """Name the columns that have another name in the output than in the file `texts`, or than
    predictions usually have.
    """
    doubled = describe_doubled(texts, first)
    for renamed in filter(None, (doubled, describe_renamed(names))):
        remark(f"column {renamed}")


def write_results(
    destination: Destination,
    name: str,
    rows: Collection[dict[str, Any]],
    spelling: TableSpelling | None = None,
    known_as: Path | None = None,
) -> Path:
    """Write rows to a file, a table by `spelling`, or as `<name>.jsonl` into a folder; return the
    file. `known_as`: its name in messages, if it has another one there.
    """
    file = find_result(destination, name)
    if file == STDOUT:
        return write_rows(file, rows)
    how: Any = {"spelling": spelling, "guarded": destination.guarded, "known_as": known_as}
    with keep_earlier(file, overwrite=destination.overwrite):
        return write_rows(file, rows, **how)


def find_result(destination: Destination, name: str) -> Path:
    """The file of the results of this name."""
    out = destination.path
    return out if is_file(out) else predictions_file(own(out), name)


def write_for_board(destination: Destination, name: str, content: str) -> Path:
    """Write a file for a leader board into a folder, and return it."""
    out = destination.path
    with keep_earlier(submission_file(own(out), name), overwrite=destination.overwrite):
        return write_submission(out, name, content)


def _recall_merged(own: Mapping[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    """The settings of a task on other files, with the table of labels by which `data clean` made
    the parts of the training; a line names it. Parts of `data clean` are as they are.
    """
    parts, asked = (_read_made(each.get("path")) for each in (own, node))
    words = [word.partition("=") for word in parts or ()]
    known = next((value.strip("'\"") for key, _, value in words if key == MERGED_BY), None)
    reader = node.get("reader") or {}
    if known is None or asked is not None or reader.get("merged_by", known) is not None:
        return node
    files = [Path(known), Path(own["path"]).parent / known]
    file = next((str(file) for file in files if file.is_file()), None)
    line = f"{MERGED_BY}={file or known}: the parts {own['path']} were made with it"
    if file is None:
        remark(f"{line}, and there is no such file", WARN)
        return node
    remark(line)
    return {**node, "reader": {**reader, "merged_by": file}}


def _read_made(path: Any) -> list[str] | None:
    """The settings of the call of `data clean` that made a folder; None for other paths."""
    record = Path(path).expanduser() / RECORD if isinstance(path, str | Path) else None
    if record is None or not record.is_file():
        return None
    return list(read_json(record).get("settings", []))


def choose_task(
    source: Source, asked: Any, given: Collection[str], *, checkpoint: object
) -> dict[str, Any]:
    """The config of the task `asked`, else of the task that the checkpoint was fine-tuned on. The
    labels and the length of the second count in any case.

    Args:
        asked: The config of another task, or None.
        given: The settings that the command line names: "task.path".
        checkpoint: The model as the command line names it, for messages.
    """
    own, plugins = source.own_task(), source.plugins
    changed = sorted(key for key in given if key.startswith("task."))
    if asked is None:
        if changed:
            fix = f"task={own.get('name', '<name>')} before it"
            raise ConfigError(changed[0], "", "needs a task", fix=fix)
        if not own:
            others = "the run of a finetune, or task=<name> for a published classifier"
            what, fix = "it was not fine-tuned on a task", f"{suggest_task(source)}{others}"
            raise ConfigError("checkpoint", checkpoint, what, fix=fix)
        return own
    asked = plain(asked)
    kind: Any = class_of(asked, plugins)
    if declared(kind) == "probe":
        return asked  # the model itself says whether it has the heads
    _refuse_decided(own, asked, given)
    stated = asked.get("label_names") if "task.label_names" in given else None
    name_labels = partial(_name_labels, asked, stated, source, checkpoint)
    if own.get("name") == asked.get("name"):
        # only what stands on the command line differs from training
        merged, stated_now = Part(own), Part(asked)
        for key in (key.removeprefix("task.") for key in changed):
            merged = merged.with_value(key, stated_now.select(key))
        kept = plain(merged)
        if "task.path" in given and MERGED_BY not in given:
            kept = _recall_merged(own, kept)
        if not kept.get("submission"):  # an earlier version knew no leader board of it
            kept |= {name: asked[name] for name in BOARD if name in asked}
        return {**kept, **_find_decided(own, kept), **name_labels()}
    difference = _compare_kinds(own, asked)
    if difference is None:
        return {**asked, **_find_decided(own, asked), **name_labels()}
    # a task that writes needs no head of its own: a Transformer is pretrained to translate
    facts: TaskFacts = facts_of(asked, plugins)
    if not own and (not facts.has_classes or facts.head in (source.config.get("heads") or {})):
        published = _read_published(asked, source)
        return {**asked, **published, **name_labels()}
    trained = f"fine-tuned on {own['name']}{difference}" if own else "not fine-tuned"
    what, fix = f"{checkpoint} was {trained}", f"task={asked.get('name')} checkpoint=..."
    raise ConfigError("task", asked.get("name"), what, fix=f"plmctl finetune {fix}")


def _find_decided(own: Mapping[str, Any], node: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the trained task that count in an evaluation by `node`, also in its parts."""
    found = {name: own[name] for name in DECIDED if name in own}
    unset = [name for name in LANGUAGES if node.get(name, 0) is None]
    found |= {name: own[name] for name in unset if own.get(name) is not None}
    for name in PARTS:
        trained = own.get(name) or {}
        if decided := {key: trained[key] for key in DECIDED if key in trained}:
            found[name] = {**(node.get(name) or {}), **decided}
    return found


def _compare_kinds(own: Mapping[str, Any], asked: Mapping[str, Any]) -> str | None:
    """Words behind the name of the trained task where the asked one is of another kind; None for
    the same kind. A task of four values is of the kind of its layout and its answer.
    """
    if own.get("_target_") != asked["_target_"]:
        return ""
    for name in PARTS:
        trained, wanted = ((node.get(name) or {}).get("_target_") for node in (own, asked))
        if trained != wanted:
            return f", whose {name} is {trained}, not {wanted}"
    return None


def _refuse_decided(
    own: Mapping[str, Any], asked: Mapping[str, Any], given: Collection[str]
) -> None:
    """ConfigError for a setting of the command line that training decided, and otherwise."""
    groups = {"task": (own, asked)}
    groups |= {f"task.{name}": (own.get(name) or {}, asked.get(name) or {}) for name in PARTS}
    for path, (trained, wanted) in groups.items():
        for name in trained.keys() & {*DECIDED} - {"label_names"}:
            key, value = f"{path}.{name}", wanted.get(name)
            if key in given and value != trained[name]:
                decided = "null" if trained[name] is None else trained[name]
                allowed = f"{decided}, which training decided"
                raise ConfigError(key, value, allowed, fix="leave it out")


def _read_published(asked: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """The facts of a Hugging Face folder about the task it was fine-tuned on: its template, and its
    longest row.
    """
    config, length = source.config, asked["max_length"]
    settings: dict[str, Any] = {"max_length": min(length, longest(config) or length)}
    settings |= {name: text for name, text in framing(config).items() if asked.get(name, 0) is None}
    return settings


def _name_labels(
    asked: Mapping[str, Any], stated: Any, source: Source, checkpoint: object
) -> dict[str, Any]:
    """The names of the rows of its head, as the checkpoint or the user says, where it has one with
    labels; a line where the user calls them otherwise.
    """
    # a task that writes looks up those of language models
    facts: TaskFacts = facts_of(asked, source.plugins)
    head, rows = facts.head, count_rows(source.config, facts.head)
    if "label_names" not in asked or rows is None or facts.outputs is not None:
        return {}
    known = labels_of(source.config, source.plugins).get(head)
    if stated is None and known is not None and source.own_task().get("name") != asked.get("name"):
        stated = _call_alike(known, asked["label_names"])
    coded = read_codes(asked["label_names"])
    names, said = name_rows(stated, known, rows, place=str(checkpoint), coded=coded)
    if said:
        remark(said)
    return {"label_names": names}


def _call_alike(known: Any, names: Any) -> dict[str, str] | None:
    """The {code: name} of another task in the order of the known rows; None where it has no codes,
    or other labels.
    """
    codes = [*read_codes(names).items()]
    order = find_order(known, {name: code for code, name in codes})
    if not codes or order is None:
        return None
    return {code: name for _, (code, name) in sorted(zip(order, codes, strict=True))}


def choose_out(
    source: Source, out: str | None, texts: str | None = None, *, submission: bool = False
) -> Path:
    """`out`, else standard output for texts of standard input, else eval/ in the run; of a
    published folder, which is not ours to write into, a folder of its name in eval/ here.
    """
    if is_printed(out, texts, submission=submission):
        return STDOUT
    if out:
        return Path(out)
    run, folder = source.run, source.folder
    return own(run) / "eval" if run else Path("eval") / folder.absolute().name


def is_printed(out: str | None, texts: str | None = None, *, submission: bool = False) -> bool:
    """Whether predictions go to standard output: `out` names it, or is None for `texts` from
    standard input.
    """
    piped = texts == str(STDOUT) and not submission
    return out == str(STDOUT) or (out is None and piped)


def name_file(file: Path) -> str:
    """The name of a file of predictions, for people."""
    return "standard output" if file == STDOUT else str(file)


def check_out(out: Path, overwrite: bool, *, submission: bool = False) -> None:
    """ConfigError for a file of no known kind, or no folder for a `submission`, UsageError for a
    file that would be written over unasked.
    """
    if out == STDOUT:
        if submission:
            raise ConfigError("out", str(out), "a folder, with --submission", fix="out=submission")
    elif is_file(out):
        refuse_existing(out, overwrite)
    elif out.is_file() or (out.suffix.lower() in ENDINGS and not out.is_dir()):
        allowed = f"a folder, or a file that ends with {', '.join(FILES)}"
        raise ConfigError(
            "out", str(out), allowed, fix=spell_setting("out", out.with_suffix(".csv"))
        )


def suggest_task(source: Source) -> str:
    """A task on text without labels that fits a checkpoint, with a comma behind it; "" if none
    does.
    """
    with without_weights():
        vocab = source.vocab
        how: Any = {"vocab_size": source.vocab_size, "vocab": vocab, "plugins": source.plugins}
        model = build_model(source.config, **how)
    if language_heads(model):
        return "task=lm data.path=<text>, "
    return "task=held_out data.path=<text>, " if is_pretrained(source) else ""


def is_pretrained(source: Source) -> bool:
    """Whether a `plmctl pretrain` with an objective has made it."""
    return not source.published and bool(source.config.get("objective"))
