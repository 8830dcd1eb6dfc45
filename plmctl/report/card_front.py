"""The front matter of a model card, as the Hugging Face hub reads it.

Fields: https://huggingface.co/docs/hub/model-cards#model-card-metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from plmctl.artifacts.label_rows import facts_of
from plmctl.artifacts.model_facts import heads_about
from plmctl.config.build import class_of
from plmctl.storage.hub import PREFIX, HubName

# the output of a head of a pretrained model: Hugging Face's name of the task
PIPELINES = {"text": "fill-mask", "next": "text-generation"}
_CODE = re.compile(r"([a-z]{2,3})(?:[_-]\w+)*")  # de, de_DE and deu_Latn are one language each
_CACHED = re.compile(r"(?:^|/)models--([^/]+)/snapshots(?:/|$)")  # a folder in the hub's cache


def write_front(
    folder: Path,
    config: Mapping[str, Any],
    facts: Mapping[str, str],
    scores: Mapping[str, Mapping[str, float]],
    *,
    name: str,
    data: str,
    library: str,
    plugins: Sequence[str],
) -> str:
    """The front matter, between its two lines `---`; a field that nobody has stated is left out.

    Args:
        folder: The run, or the folder of a published model.
        facts: Facts that the settings lack: license, language.
        scores: {split: {metric: value}}.
        name: The name of the model.
        data: The name of the training data.
        library: The library that reads the weights.
    """
    task = config.get("task") or {}
    tag = find_pipeline(config, plugins)
    recipe = Path(str(config.get("recipe") or "")).stem
    stated = [word.strip() for word in facts.get("language", "").split(",") if word.strip()]
    fields = {
        "license": facts.get("license"),
        "language": stated or list(dict.fromkeys(_list_languages(config))),
        "library_name": library,
        "pipeline_tag": tag,
        "base_model": find_base(folder, config),
        "tags": [word for word in ("plmctl", recipe, str(task.get("name") or "")) if word],
        "datasets": [data] if task.get("name") else None,
        "metrics": list(task.get("metrics") or []) if task.get("name") else None,
        "model-index": [{"name": name, "results": _list_results(task, data, tag, scores)}]
        if scores
        else None,
    }
    kept = {key: value for key, value in fields.items() if value}
    return f"---\n{yaml.safe_dump(kept, sort_keys=False, allow_unicode=True)}---\n"


def find_base(folder: Path, config: Mapping[str, Any]) -> str | None:
    """The model of the hub that training began from, or that was converted; None for another."""
    named = str(config.get("checkpoint") or config.get("init") or "")
    if named.startswith(PREFIX):
        return HubName.parse(named).name
    cached = _CACHED.search(named) or _CACHED.search(str(folder))
    return cached[1].replace("--", "/") if cached else None


def _list_languages(config: Mapping[str, Any]) -> Iterator[str]:
    """The codes of the languages that the settings name."""
    task, data = config.get("task") or {}, config.get("data") or {}
    for value in (
        task.get("source_language"),
        task.get("target_language"),
        *((node or {}).get("language") for node in (data.get("mixture") or {}).values()),
    ):
        if code := _CODE.fullmatch(str(value or "")):
            yield code[1]


def find_pipeline(config: Mapping[str, Any], plugins: Sequence[str]) -> str:
    """The task of the model, in the words of Hugging Face's hub; empty if its parts do not say it,
    or belong to a plug-in that may not be imported.
    """
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


def _list_results(
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
