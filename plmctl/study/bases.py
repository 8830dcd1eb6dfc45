"""Bases: small models that have learned to read. A study begins with one (`start=encoder`), so that
its few updates are spent on its question.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from plmctl.analysis.runs import RunLog, find_standing
from plmctl.core.terminal import print_table, tell
from plmctl.storage.paths import find_cache_folder


@dataclass(frozen=True)
class StudyBase:
    """One kind of base.

    Args:
        recipe: The recipe of plmctl pretrain.
        words: The settings behind it.
        minutes: The minutes that it takes on one core, as measured (docs/results/machine.md).
    """

    recipe: str
    words: tuple[str, ...]
    minutes: int


_SMALL = (
    *("size=tiny", "tokenizer=wordpiece", "tokenizer.vocab_size=4096", "tokenizer.sentinels=100"),
    *("format.max_length=64", "data.valid_share=0.05", "train.eval_every=500"),
)
# sentences and vectors that start from neighbours: so the decoder soon uses what the encoder read
_RESTORING = (
    *("format=sentences", "noise=[text_infill]", "first_vectors=pairs", "train.batch_size=64"),
    "model.decoder.stack.residual._target_=plmctl.nn.residual.PreNorm",
    *("model.encoder.embedding.dropout=0", "optim.lr=2e-3", "train.steps=1000"),
)
BASES = {
    "encoder": StudyBase("modern_encoder", (*_SMALL, "train.steps=2000"), 10),
    # a decoder learns from every token: more updates of so little text are learned by heart
    "decoder": StudyBase("modern_decoder", (*_SMALL, "train.steps=400"), 4),
    "seq2seq": StudyBase("bart", (*_SMALL, *_RESTORING), 6),
}


def find_base(kind: str, cache_dir: str | None = None) -> Path:
    """The run directory of a base, made or not: bases/KIND in the cache folder."""
    return find_cache_folder(cache_dir) / "bases" / kind


def find_state(folder: Path) -> str:
    """The state of a base: not made, stopped, still going, or finished."""
    if not (folder / "config.yaml").is_file():
        return "not made"
    return find_standing(RunLog.read_started(folder)).state


def describe_making(kind: str) -> str:
    """The command that makes a base."""
    return f"plmctl bases make {kind}"


def show_bases(*, as_json: bool) -> None:
    """Print all bases, with their folders and how far each is."""
    rows = [
        {
            "base": kind,
            "recipe": base.recipe,
            "minutes": str(base.minutes),
            "state": find_state(find_base(kind)),
            "folder": str(find_base(kind)),
        }
        for kind, base in BASES.items()
    ]
    if as_json:
        tell(json.dumps(rows, indent=1))
    else:
        print_table(list(rows[0]), [list(row.values()) for row in rows])
