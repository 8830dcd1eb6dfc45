"""A model card in Hugging Face's format (Mitchell et al., 2019, arXiv:1810.03993): YAML front
matter, then a few paragraphs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import safe_open

from plmctl.analysis.runs import RunLog, is_evaluated, read_baselines, read_predictions, read_result
from plmctl.artifacts.loading import open_source
from plmctl.config.first_session import first_lines
from plmctl.config.groups import LENGTHS
from plmctl.config.keys import is_path
from plmctl.config.spec import key_of
from plmctl.core.spelling import spell_word
from plmctl.data.held_out import read_held_out
from plmctl.data.shards import is_tokens, read_manifest
from plmctl.report.card_front import find_pipeline, write_front
from plmctl.report.page import MARK, Block, Code, Heading, Paragraph, TableBlock, render_markdown
from plmctl.report.text import describe_method, describe_warmup, format_number, spell_within
from plmctl.runs.own_rate import scale_rate
from plmctl.storage.atomic import write_text
from plmctl.storage.reading import COPY, read_json
from plmctl.storage.settings_file import to_yaml
from plmctl.tasks.scores.base import MEANINGS, join_meanings
from plmctl.tasks.scores.below import READ, TESTS, list_choices, list_unbeaten, list_unscored
from plmctl.tasks.scores.bundles import add_bundles, list_known
from plmctl.tasks.scores.metrics import spell_metric
from plmctl.training.averaged import read_average
from plmctl.training.origins import describe_origin, read_origins

NAME = "README.md"
SUFFIXES = (".yaml", ".yml")
FACTS = ("license", "language", "name")  # facts that no config knows
FEW = 20  # labels that a sentence lists
UNSTATED = "Not stated."
# {(library, pipeline): a program}; without truncation a text of many tokens ends in an error
USES = {
    ("transformers", "text-classification"): """from transformers import pipeline

answer = pipeline("text-classification", "{folder}")
print(answer("A text of any length.", truncation=True))"""
}


def make_card(
    folder: Path,
    config: Mapping[str, Any],
    facts: Mapping[str, str] | None = None,
    *,
    library: str = "plmctl",
    plugins: Sequence[str] = (),
    decided: Sequence[str] = (),
) -> str:
    """README.md of the run in `folder` with the settings `config`; unknown facts are left out.

    `library`: the library that reads the weights next to it. `plugins`: packages outside plmctl
    whose parts may be imported. `decided`: what is to be known of how labels are chosen.
    """
    facts = facts or {}
    data = _data(config) or str((config.get("task") or {}).get("name"))
    name = facts.get("name") or folder.resolve().name
    result, how = _read_scores(folder, plugins)
    scores = {split: dict(values) for split, values in (result.get("metrics") or {}).items()}
    front = write_front(
        folder, config, facts, scores, name=name, data=data, library=library, plugins=plugins
    )
    blocks = _body(folder, config, result, decided, [each for each in how if each])
    use = USES.get((library, find_pipeline(config, plugins)), "").format(folder=name)
    example: list[Block] = [Heading("Use"), Code(use)] if use else []
    body = render_markdown([*example, *blocks], charts="")
    return f"{front}\n# {name}\n\n{body}\n{_fold_settings(config)}\n{MARK}\n"


def add_card(
    folder: Path, source: Path, facts: Mapping[str, str], *, library: str, plugins: Sequence[str]
) -> None:
    """Write the card of a converted model into its folder, where the layout has none of its own.

    Args:
        folder: The folder that was written.
        facts: Facts that no config has.
        library: The library that reads the weights.
    """
    if not (folder / NAME).exists():
        model = open_source(source, plugins=plugins)
        place = model.run or model.folder
        card = make_card(place, model.config, facts, library=library, plugins=plugins)
        write_text(folder / NAME, card)


def _read_scores(folder: Path, plugins: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """(what result.json has, or what the decision of a checkpoint makes of it, lines on that, on
    the file of test and on scores of other files), without folders of the author.
    """
    if is_evaluated(folder):
        from plmctl.report.decided import decide_run  # brings torch

        if decided := decide_run(folder, plugins):
            how = decided.describe()
            scores = add_bundles(decided.result, decided.predictions)
            how = how and f"Scores are {how}"
            return scores, [how, *decided.describe_evaluated(public=True)]
    return add_bundles(read_result(folder) or {}, read_predictions(folder)), []


def _given(folder: Path) -> list[str]:
    """The words that started the run, without words that name the author's files."""
    return [
        spell_word(line)
        for line in first_lines(folder)
        if not (is_path(key_of(line)) or line.startswith("run.") or line.endswith(SUFFIXES))
    ]


def _own_rate(config: Mapping[str, Any]) -> Any:
    """The rate of the training; a run of an older version has saved that of its reference."""
    optim, width = config.get("optim") or {}, (config.get("size") or {}).get("width")
    reference = (config.get("train") or {}).get("lr_width")
    return scale_rate(optim["lr"], reference, width) if width and "lr" in optim else None


def _describe_part(part: Any, *, without: Sequence[str] = ()) -> str:
    """`AdamW, weight_decay 0.01`: a part with its own settings."""
    if not isinstance(part, Mapping) or "_target_" not in part:
        return ""
    own = [
        f"{name} {value}"
        for name, value in part.items()
        if name != "_target_" and name not in without and not isinstance(value, (Mapping, list))
    ]
    return ", ".join([str(part["_target_"]).rpartition(".")[2], *own])


def _describe_weights(weights: Any) -> str:
    """The weight of each class in the loss."""
    if not isinstance(weights, Mapping):
        return str(weights or "")
    return ", ".join(f"{name} {format_number(value)}" for name, value in weights.items())


def _data(config: Mapping[str, Any]) -> str:
    """The training data, without the names of the author's folders."""
    task, data = config.get("task") or {}, config.get("data") or {}
    several = [*(data.get("mixture") or {}), *(data.get("sources") or {})]
    return (
        _names(task.get("path") or data.get("path"))
        or ", ".join(several)
        or ("" if task else "the text that ships with plmctl")
    )


def _names(paths: Any) -> str:
    """The last parts of one path or of several."""
    return ", ".join(
        Path(str(path)).name for path in ([paths] if isinstance(paths, str) else paths or [])
    )


def _body(
    folder: Path,
    config: Mapping[str, Any],
    result: Mapping[str, Any],
    decided: Sequence[str],
    how: Sequence[str],
) -> list[Block]:
    log = RunLog.read_started(folder)
    facts = {**_describe_data(folder, config, log), **_describe_training(config)}
    rows = [[name, str(value)] for name, value in facts.items() if value not in (None, "")]
    return [
        Heading("Training"),
        TableBlock(["what", "value"], rows),
        *_evaluate(folder, log, config.get("task") or {}, result, how),
        *([Heading("How labels are chosen")] if decided else []),
        *(Paragraph(f"{each}.") for each in decided),
        Heading("Intended use"),
        Paragraph(UNSTATED),
        Heading("Limitations"),
        Paragraph(" ".join(list_limits(config, result))),
    ]


def _describe_data(folder: Path, config: Mapping[str, Any], log: RunLog) -> dict[str, Any]:
    """The data, and how much of them training has read, in how long."""
    path, train = (config.get("data") or {}).get("path"), config.get("train") or {}
    least, seconds = train.get("least_steps"), log.last("seconds")
    size = None
    if path and is_tokens(path):
        whole = read_manifest(Path(path))["splits"]["train"]
        counts = [f"{whole[unit]:,} {unit}" for unit in ("documents", "words") if unit in whole]
        size = ", ".join([*counts, f"{whole['tokens']:,} tokens"])
    return {
        "made with": "plmctl",
        "recipe": Path(str(config.get("recipe") or "")).stem,
        "averaged": read_average(folder).get("what"),
        "starts from": _describe_origins(
            _hide(config.get("checkpoint") or config.get("init")), folder, "checkpoint", "init"
        ),
        "taught by": _describe_origins(_names(config.get("teacher")), folder, "teacher"),
        "trained on": _data(config),
        "size of the data": size,
        "share of it": share if (share := train.get("share")) != 1 else None,
        "settings given": " ".join(_given(folder)),
        "length": next((f"{train[n]:,} {n}" for n in LENGTHS if train.get(n) is not None), None),
        "at least": f"{least:,} updates" if least and train.get("epochs") is not None else None,
        "updates": f"{log.step:,}" if log.series else None,
        **{f"{unit} read": f"{read:,}" for unit, read in _count_read(folder, log).items() if read},
        "training FLOPs": _estimate_flops(folder, log),
        "training time": f"{seconds / 60:,.1f} minutes" if seconds else None,
    }


def _count_read(folder: Path, log: RunLog) -> dict[str, int]:
    """Count the rows, words and tokens of all updates; only checkpoints have the rows."""
    states = sorted(folder.glob("checkpoints/step-*/trainer.json"), key=lambda f: f.stat().st_mtime)
    progress = read_json(states[-1], fix=COPY)["progress"] if states else {}
    found = {unit: int(log.last(unit) or progress.get(unit) or 0) for unit in ("words", "tokens")}
    return {"rows": int(progress.get("rows") or 0), **found}


def _estimate_flops(folder: Path, log: RunLog) -> str | None:
    """Estimate 6 N D, with N weights in matrices and D tokens (Kaplan et al., 2020,
    arXiv:2001.08361, sec. 2.1); None without a checkpoint or a count of tokens.
    """
    files = sorted(folder.glob("checkpoints/step-*/model.safetensors"))
    tokens = log.last("tokens")
    if not files or not tokens:
        return None
    with safe_open(files[-1], "numpy") as weights:
        names = weights.keys()
        shapes = {name: weights.get_slice(name).get_shape() for name in names}
    count = sum(
        math.prod(shape)
        for name, shape in shapes.items()
        if len(shape) > 1 and "embedding" not in name
    )
    return f"about {6.0 * count * tokens:.2g} (6 N D, of {count:,} weights in matrices)"


def _describe_training(config: Mapping[str, Any]) -> dict[str, Any]:
    """The size of the model, and how it was trained."""
    size, train, task = (config.get(name) or {} for name in ("size", "train", "task"))
    return {
        **{name.replace("_", " "): value for name, value in size.items()},
        "longest row": _find_longest(config),
        "batch size": None if train.get("batch_tokens") else train.get("batch_size"),
        "tokens of a batch": train.get("batch_tokens"),
        "optimizer": _describe_part(config.get("optim"), without=("lr", "_partial_")),
        "learning rate": _own_rate(config),
        "schedule": _describe_part(config.get("schedule")),
        "warm-up": describe_warmup(config.get("schedule") or {}, train.get("steps")),
        "class weights": _describe_weights(task.get("class_weights")),
        "precision": train.get("precision"),
        "seed": config.get("seed"),
    }


def _find_longest(config: Mapping[str, Any]) -> Any:
    task, form = config.get("task") or {}, config.get("format") or {}
    return task.get("max_length") or form.get("max_length")


def list_limits(config: Mapping[str, Any], result: Mapping[str, Any]) -> Iterator[str]:
    """List the limits that follow from the run, a sentence each."""
    if longest := _find_longest(config):
        yield f"Training has read rows of at most {longest:,} tokens."
    labels = [str(label) for label in result.get("labels") or ()]
    if labels and len(labels) <= FEW:
        yield f"Every answer is one of its labels: {', '.join(labels)}."
    if result.get("metrics"):
        yield f"The scores are those of one run, with the seed {config.get('seed')}."
        yield "Other data than those of the scores were not measured."
    yield "Biases were not measured."


def _describe_origins(named: str, folder: Path, *settings: str) -> str:
    """A named model, with the checkpoints that it was when the run began."""
    origins = read_origins(folder)
    found = [describe_origin(each) for name in settings for each in origins.get(name, ())]
    return f"{named} ({'; '.join(found)})" if found else named


def _hide(value: Any) -> str:
    """A path without the names of the author's folders, where it is absolute."""
    text = str(value or "")
    return Path(text).name if text.startswith(("/", "~", "..")) else text


def _fold_settings(config: Mapping[str, Any]) -> str:
    """All settings, which the page of the hub folds; paths as `_hide` has them."""

    def hide(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: hide(each) for name, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [hide(each) for each in value]
        return _hide(value) if isinstance(value, (str, Path)) else value

    shown = to_yaml(hide({key: value for key, value in config.items() if key != "run"})).rstrip()
    return f"<details>\n<summary>All settings</summary>\n\n```yaml\n{shown}\n```\n\n</details>\n"


def _evaluate(
    folder: Path,
    log: RunLog,
    task: Mapping[str, Any],
    result: Mapping[str, Any],
    how: Sequence[str],
) -> list[Block]:
    """The scores with their intervals, and what is known about them."""
    scores, percent = result.get("metrics") or {}, result.get("percent") or ()
    held = read_held_out(folder)
    held_out = (
        {name: log.last(name) for name in log.series if name.startswith("valid/")}
        if not scores and (held is None or held.validates)
        else {}
    )
    evaluated = [
        [
            split,
            spell_metric(metric, percent),
            format_number(value),
            _spell_interval(result, split, metric),
        ]
        for split, values in scores.items()
        for metric, value in values.items()
    ]
    where = f"held out: {held.describe()}" if held else "held-out documents"
    evaluated += [
        [where, name.removeprefix("valid/"), format_number(value), ""]
        for name, value in held_out.items()
    ]
    few = held is not None and not held.validates
    tables: list[Block] = [Heading("Evaluation")] if evaluated or few else []
    if evaluated:
        columns = 4 if any(row[-1] for row in evaluated) else 3
        head = ["data", "metric", "value", "95% interval"]
        tables.append(TableBlock(head[:columns], [row[:columns] for row in evaluated]))
        how_found = describe_method(bool(result.get("bundles")))
        tables += [Paragraph(f"The last column has {how_found}")] if columns == 4 else []
    if held and few:
        why = f"{held.describe()} were held out, too few for a validation."
        tables.append(Paragraph(why))
    if metrics := task.get("metrics"):
        simple, lower = read_baselines(folder), result.get("lower") or ()
        told: dict[str, Any] = {"tests": result.get(TESTS), "read": result.get(READ)}
        below = list_unbeaten(scores, simple, metrics[0], lower=lower, **told)
        tables += [Paragraph(f"{line}.") for line in (*below, *list_unscored(scores, simple))]
    tables += [Paragraph(f"{line}.") for line in (*list_known(result), *list_choices(result))]
    if evaluated:
        meant = join_meanings(result.get(MEANINGS) or {})
        how = [*([f"Metrics: {meant}"] if meant else []), *how]
        tables += [Paragraph(f"{line[:1].upper()}{line[1:]}.") for line in how]
    predicted = {split: len(rows) for split, rows in read_predictions(folder).items()}
    if counts := {**predicted, **(result.get("examples") or {})}:
        listed = ", ".join(
            f"{split} {count:,}{spell_within(result, split)}" for split, count in counts.items()
        )
        tables.append(Paragraph(f"Examples: {listed}."))
    return tables


def _spell_interval(result: Mapping[str, Any], split: str, metric: str) -> str:
    pair = ((result.get("intervals") or {}).get(split) or {}).get(metric)
    return " to ".join(map(format_number, pair)) if pair else ""
