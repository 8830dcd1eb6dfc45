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


def is_near_frequencies(scores: Mapping[str, float], target: str) -> bool:
    """Whether a held-out loss is no better than that of the frequencies of single words.

    Args:
        scores: `unigram/mlm` and `nll/mlm` or `loss/mlm`, for a target of this name.
        target: The name of the target.
    """
    loss = scores.get(f"nll/{target}", scores.get(f"loss/{target}"))
    unigram = scores.get(f"unigram/{target}")
    return loss is not None and unigram is not None and loss >= unigram - NEAR


def read_held_out(run: Path) -> HeldText | None:
    """The held-out text of a run; None for runs without a record of it."""
    try:
        found = parse_json((run / FILE).read_text(encoding="utf-8"))
        return HeldText(int(found["documents"]), int(found["tokens"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
