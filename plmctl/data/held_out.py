"""The size of held-out text, and whether losses on it say anything."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from plmctl.core.pasted import spell_fix
from plmctl.core.terminal import counted
from plmctl.data.shards import is_tokens
from plmctl.storage.atomic import write_json
from plmctl.storage.reading import parse_json

FILE = "held_out.json"  # in a run
# tokens below which losses are no validation: of 2,000, 15% are hidden, and the mean of these 300
# losses is known to about 0.2 nats
ENOUGH = 2000
NEAR = 0.05  # nats within which a loss counts as that of the frequencies
# the share of the loss of a constant answer that a model must save: McFadden's R^2 of one that has
# begun to tell answers apart
GAINED = 0.05
KINDS_OF_FLOORS = ("unigram", "constant")
OTHER = "data.valid_path=<other>.txt, text of your own"
FIX = f"{OTHER}, or a larger data.valid_share"


@dataclass(frozen=True)
class HeldText:
    """The text that validation reads: all held-out text of a run."""

    documents: int
    tokens: int

    @property
    def validates(self) -> bool:
        """Whether it is enough for a validation."""
        return self.tokens >= ENOUGH

    def describe(self) -> str:
        """`12 documents, 5,400 tokens of text`, without the special ones of rows."""
        return f"{counted(self.documents, 'document')}, {counted(self.tokens, 'token')} of text"

    def explain(self, fix: str = FIX) -> str:
        """The line of a run; where it is too little, that it validates nothing, and the fix."""
        if not self.tokens:
            return f"valid: nothing is held out, no validation\n  fix: {spell_fix(fix)}"
        if self.validates:
            return f"valid: {self.describe()}"
        few = f"too few for a validation, which needs {ENOUGH:,} tokens"
        said = f"held out: {self.describe()}: {few}; losses on them are a sample's"
        return f"{said}\n  fix: {spell_fix(fix)}"

    def write(self, run: Path) -> None:
        """Keep it in the folder of a run."""
        write_json(run / FILE, asdict(self))


def find_fix(data: Any, documents: int) -> str:
    """The change of the settings of `data` that gives a run more held-out text.

    Args:
        documents: The number of training documents: with one document, no share can be held out.
    """
    if data.valid_path:
        return "data.valid_path=<more text>"
    if is_tokens(data.path):
        return f"{FIX}, for plmctl tokenize again"
    if data.streaming:
        return OTHER
    if documents > 1:
        return FIX
    path = data.path
    if isinstance(path, str) and path.endswith(".txt") and "*" not in path:
        blank = f"{Path(path).stem}-lines.txt"
        line = f"sed G {shlex.quote(path)} > {shlex.quote(blank)}"
        return f"{line}  # then data.path={blank}: each line is a document; or {OTHER}"
    return f"{OTHER}, or blank lines between the documents of the text"


def is_near_floor(scores: Mapping[str, float], term: str) -> bool:
    """Whether a held-out loss is no better than that of the frequencies of single tokens, or hardly
    below that of one constant answer.

    Args:
        scores: `loss/mlm` or `nll/mlm`, and `unigram/mlm` or `constant/mlm`, for a term of this
            name.
    """
    loss = scores.get(f"nll/{term}", scores.get(f"loss/{term}"))
    unigram, constant = (scores.get(f"{kind}/{term}", 0.0) for kind in KINDS_OF_FLOORS)
    floor = unigram - NEAR if unigram else constant * (1 - GAINED)
    return loss is not None and floor > 0 and loss >= floor


def read_held_out(run: Path) -> HeldText | None:
    """The held-out text of a run; None for runs without a record of it."""
    try:
        found = parse_json((run / FILE).read_text(encoding="utf-8"))
        return HeldText(int(found["documents"]), int(found["tokens"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
