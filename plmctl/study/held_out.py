"""Is enough text held out for the losses of a study's arms? Asked before the first job."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from plmctl.analysis.statistics import count_needed
from plmctl.config.build import plain
from plmctl.core.errors import DataError
from plmctl.core.spelling import spell_word
from plmctl.data.located import locate
from plmctl.data.shards import is_tokens, read_manifest
from plmctl.data.survey import TextSource, survey_text
from plmctl.inputs.tokenize import find_sources
from plmctl.study.plan import StudyPlan
from plmctl.study.study import PRETRAIN

# a difference of losses, in nats, that a study has to be able to see; how far the losses of two
# models on the same token are apart, as a standard deviation; the share of tokens with a loss, of
# BERT's masks
DIFFERENCE, DEVIATION, PREDICTED = 0.1, 1.0, 0.15
CHARACTERS = 4  # characters of a token, in the mean
MUCH = 1 << 26  # bytes of text of which enough is held out, without looking
HALF = 0.5  # the share of a text that is held out at most
NEEDED = math.ceil(count_needed(DIFFERENCE, DEVIATION) / PREDICTED)


class Sizes(NamedTuple):
    """Tokens of a text that are held out, and of all of it."""

    held: int
    all: int


def refuse_little(plan: StudyPlan) -> None:
    """DataError if the losses of an arm would be means over too few held-out tokens. They could not
    show a difference of DIFFERENCE with the usual power, whatever the seeds.
    """
    if not any(metric.of == PRETRAIN for metric in plan.study.metrics.values()):
        return
    counted: dict[str, Sizes | None] = {}
    for name, composed in plan.arms.items():
        if not composed.arm.pretrain:
            continue
        config: dict[str, Any] = plain(composed.pretrain)
        data = config["data"]
        key = json.dumps(data, sort_keys=True, default=str)
        if key not in counted:
            counted[key] = _count(data)
        rows, length = config["eval"]["rows"], (config["format"] or {}).get("max_length")
        read = rows * length if rows and length else math.inf
        if (sizes := counted[key]) is None or min(sizes.held, read) >= NEEDED:
            continue
        few = f"validation of arm '{name}' reads about {min(sizes.held, read):,} tokens"
        why = (
            f"a difference of {DIFFERENCE} nats needs {NEEDED:,} to be seen with a probability of"
            f" 80%, {PREDICTED:.0%} of them predicted"
        )
        raise DataError(f"{few}; {why}", file=_name(data), fix=_find_fix(data, sizes, read))


def _find_fix(data: Mapping[str, Any], sizes: Sizes, read: float) -> str:
    if read < NEEDED <= sizes.held:
        return "eval.rows=null in pretrain.overrides"
    wanted = math.ceil(130 * NEEDED / max(1, sizes.all)) / 100
    if data["valid_path"] is None and not is_tokens(data["path"]) and wanted <= HALF:
        return f"data.valid_share={wanted:g}"
    return f"{spell_word('data.valid_path=<other text>')}, or more text"


def _name(data: Mapping[str, Any]) -> str:
    return str(data["valid_path"] or data["path"] or "the text that comes with Python")


def _count(data: dict[str, Any]) -> Sizes | None:
    """About how many tokens there are; None where that is not known without much reading."""
    if data["mixture"] or data["sources"] or data["streaming"]:
        return None
    if is_tokens(data["path"]):
        splits = read_manifest(locate(data["path"]))["splits"]
        return Sizes(splits["valid"]["tokens"], sum(each["tokens"] for each in splits.values()))
    if str(data["path"]).startswith(("hf:", "job:")):
        return None
    text, valid = find_sources(data, data["path"])
    if _measure(valid or text) > MUCH:
        return None
    share = 0 if valid else data["valid_share"]
    survey = survey_text(valid or text, valid_share=share, sample_bytes=0)
    held = survey.bytes if valid else survey.held
    return Sizes(held // CHARACTERS, survey.bytes // CHARACTERS)


def _measure(source: TextSource) -> int:
    """The bytes of its files."""
    return sum(file.stat().st_size for file in source.files() if isinstance(file, Path))
