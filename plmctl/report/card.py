"""A model card in Hugging Face's format (Mitchell et al., 2019, arXiv:1810.03993): YAML front
matter, then a few paragraphs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plmctl.analysis.runs import (
    RunLog,
    keeps_decision,
    read_baselines,
    read_predictions,
    read_result,
)
from plmctl.artifacts.label_rows import facts_of
from plmctl.config.build import class_of
from plmctl.config.first_session import first_lines
from plmctl.config.groups import LENGTHS
from plmctl.config.keys import is_path
from plmctl.config.spec import key_of
from plmctl.core.spelling import spell_word
from plmctl.data.held_out import read_held_out
from plmctl.report.page import MARK, Block, Heading, Paragraph, TableBlock, render_markdown
from plmctl.report.text import format_number
from plmctl.runs.own_rate import scale_rate
from plmctl.tasks.scores.below import list_below
from plmctl.training.averaged import read_average

SUFFIXES = (".yaml", ".yml")
FACTS = ("license", "language", "name")  # facts that no config knows
# the output of a head of a pretrained model: Hugging Face's name of the task
PIPELINES = {"text": "fill-mask", "next": "text-generation"}
UNSTATED = "Not stated."


def make_card(
    folder: Path,
    config: Mapping[str, Any],
    facts: Mapping[str, str] | None = None,
    *,
    library: str = "plmctl",
    plugins: Sequence[str] = (),
    decided: Sequence[str] = (),
) -> str:
    """README.md of the run in `folder` with the settings `config`; unknown facts are marked as not
    stated.

    `library`: the library that reads the weights next to it. `plugins`: packages outside plmctl
    whose parts may be imported. `decided`: what is to be known of how labels are chosen.
    """
    facts = facts or {}
    task = config.get("task") or {}
    data = _data(config) or str(task.get("name"))
    name = facts.get("name") or folder.resolve().name
    result, how = _read_scores(folder, plugins)
    scores = {split: dict(values) for split, values in (result.get("metrics") or {}).items()}
    front = {
        "license": facts.get("license", "unknown"),
        **(
            {"language": [word.strip() for word in facts["language"].split(",")]}
            if "language" in facts
            else {}
        ),
        "library_name": library,
        **({"pipeline_tag": tag} if (tag := _pipeline(config, plugins)) else {}),
        "tags": [
            word
            for word in (
                "plmctl",
                Path(str(config.get("recipe") or "")).stem,
                str(task.get("name") or ""),
            )
            if word
        ],
        **(
            {"datasets": [data], "metrics": list(task.get("metrics") or [])}
            if task.get("name")
            else {}
        ),
        **(
            {"model-index": [{"name": name, "results": _results(task, data, tag, scores)}]}
            if scores
            else {}
        ),
    }
    import yaml

    head = yaml.safe_dump(front, sort_keys=False, allow_unicode=True)
    blocks = _body(folder, config, scores, decided, how, result.get("lower") or ())
    body = render_markdown(blocks, charts="")
    return f"---\n{head}---\n\n# {name}\n\n{body}\n{MARK}\n"


def _read_scores(folder: Path, plugins: Sequence[str]) -> tuple[dict[str, Any], str]:
    """(what result.json has, or what the decision of a checkpoint makes of it, which that is)."""
    if keeps_decision(folder):
        from plmctl.report.decided import decide_run  # brings torch

        if decided := decide_run(folder, plugins):
            return decided.result, decided.describe()
    return read_result(folder) or {}, ""


def _pipeline(config: Mapping[str, Any], plugins: Sequence[str]) -> str:
    """The task of the model, in the words of Hugging Face's hub; empty if its parts do not say it,
    or belong to a plug-in that may not be imported.
    """
    from plmctl.artifacts.model_facts import heads_about

    try:
        if task := config.get("task"):
            return str(getattr(facts_of(task, plugins), "pipeline", ""))
        about = heads_about(config, plugins)
        model = class_of(config.get("model") or {}, plugins)
    except ValueError:
        return ""
    words = [word for kind, word in PIPELINES.items() if kind in about]
    # it writes another text than it reads
    other = words and getattr(model, "writes", "text") == "target"
    return "text2text-generation" if other else next(iter(words), "")


def _results(
    task: Mapping[str, Any], data: str, tag: str, scores: Mapping[str, Mapping[str, float]]
) -> list[dict[str, Any]]:
    """One entry for each split, as the leader boards of the hub read it, with the task's own
    metrics.
    """
    metrics = task.get("metrics") or ()
    return [
        {
            "task": {"type": tag or "other", "name": str(task.get("name"))},
            "dataset": {"name": data, "type": str(task.get("name")), "split": split},
            "metrics": [
                {"type": metric, "name": metric, "value": float(value)}
                for metric, value in values.items()
                if metric in metrics
            ],
        }
        for split, values in scores.items()
    ]


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


def _describe_warmup(schedule: Mapping[str, Any], steps: int | None) -> str:
    """The warm-up of a run of so many updates, which a limit may cut; empty where nothing says how
    many they are.
    """
    warmup = schedule.get("warmup_share", 0) * (steps or 0) or schedule.get("warmup_steps", 0)
    if not steps or not warmup:
        return ""
    return f"{min(warmup, schedule.get('warmup_limit', 1) * steps):,.0f} of {steps:,} updates"


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
    scores: Mapping[str, Mapping[str, float]],
    decided: Sequence[str],
    how: str,
    lower: Sequence[str],
) -> list[Block]:
    log = RunLog.read_started(folder)
    size, train, task = (config.get(name) or {} for name in ("size", "train", "task"))
    least = train.get("least_steps")
    facts = {
        "made with": "plmctl",
        "recipe": Path(str(config.get("recipe") or "")).stem,
        "averaged": read_average(folder).get("what"),
        "starts from": config.get("checkpoint") or config.get("init"),
        "taught by": _names(config.get("teacher")),
        "trained on": _data(config),
        "share of it": share if (share := train.get("share")) != 1 else None,
        "settings given": " ".join(_given(folder)),
        **{name.replace("_", " "): value for name, value in size.items()},
        "longest row": task.get("max_length") or (config.get("format") or {}).get("max_length"),
        "length": next((f"{train[n]:,} {n}" for n in LENGTHS if train.get(n) is not None), None),
        "at least": f"{least:,} updates" if least and train.get("epochs") is not None else None,
        "updates": f"{log.step:,}" if log.series else None,
        "tokens": format_number(log.last("tokens")),
        "batch size": train.get("batch_size"),
        "optimizer": _describe_part(config.get("optim"), without=("lr", "_partial_")),
        "learning rate": _own_rate(config),
        "schedule": _describe_part(config.get("schedule")),
        "warm-up": _describe_warmup(config.get("schedule") or {}, train.get("steps")),
        "class weights": _describe_weights(task.get("class_weights")),
        "precision": train.get("precision"),
        "seed": config.get("seed"),
    }
    rows = [[name, str(value)] for name, value in facts.items() if value not in (None, "")]
    return [
        Heading("Training"),
        TableBlock(["what", "value"], rows),
        *_evaluate(folder, log, task, scores, how, lower),
        *([Heading("How labels are chosen")] if decided else []),
        *(Paragraph(f"{each}.") for each in decided),
        Heading("Intended use"),
        Paragraph(UNSTATED),
        Heading("Limitations"),
        Paragraph(UNSTATED),
    ]


def _evaluate(
    folder: Path,
    log: RunLog,
    task: Mapping[str, Any],
    scores: Mapping[str, Mapping[str, float]],
    how: str,
    lower: Sequence[str],
) -> list[Block]:
    """The scores, and what is known about them."""
    held = read_held_out(folder)
    held_out = (
        {name: log.last(name) for name in log.series if name.startswith("valid/")}
        if not scores and (held is None or held.validates)
        else {}
    )
    evaluated = [
        [split, metric, format_number(value)]
        for split, values in scores.items()
        for metric, value in values.items()
    ]
    where = f"held out: {held.describe()}" if held else "held-out documents"
    evaluated += [
        [where, name.removeprefix("valid/"), format_number(value)]
        for name, value in held_out.items()
    ]
    few = held is not None and not held.validates
    tables: list[Block] = [Heading("Evaluation")] if evaluated or few else []
    if evaluated:
        tables.append(TableBlock(["data", "metric", "value"], evaluated))
    if held and few:
        why = f"{held.describe()} were held out, too few for a validation."
        tables.append(Paragraph(why))
    if metrics := task.get("metrics"):
        below = list_below(scores, read_baselines(folder), metrics[0], lower=lower)
        tables += [Paragraph(f"{line}.") for line in below]
    if evaluated and how:
        tables.append(Paragraph(f"Scores are {how}."))
    counts = {split: len(rows) for split, rows in read_predictions(folder).items()}
    if counts:
        listed = ", ".join(f"{split} {count:,}" for split, count in counts.items())
        tables.append(Paragraph(f"Examples: {listed}."))
    return tables
