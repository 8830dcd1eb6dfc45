"""`plmctl extend`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from plmctl.config.build import MISSING
from plmctl.config.command import About, Command, Result
from plmctl.config.groups import Data
from plmctl.core.errors import ConfigError, raise_all
from plmctl.core.spelling import spell_setting
from plmctl.core.terminal import tell
from plmctl.core.values import Count
from plmctl.storage.resumable import new_folder


@dataclass(frozen=True)
class Extend(Command):
    """Add tokens of the words of your field to a trained model.

    All old tokens keep their ids, and texts without a new token are read as before.
    """

    about = About(
        "extend",
        place=106,
        examples=(
            (
                "plmctl extend checkpoint=runs/first data.path=README.md tokens=50 least=3"
                " out=extended"
            ),
            (
                "plmctl extend checkpoint=runs/first data.path=README.md tokens=50 least=3"
                " rows=random out=extended-drawn"
            ),
        ),
        bare="checkpoint",
        metavar="RUN",
        options="json print_config config_dir plugin",
    )

    checkpoint: str = MISSING  # a run, a checkpoint or a Hugging Face folder
    data: Data = Data()  # text of the field whose words the new tokens are parts of
    tokens: Count = 1000  # new ones, at most
    least: Count = 10  # how often a new token must stand in the text
    # rows of new tokens in every table of the model: means of rows of old tokens, or random rows
    rows: Literal["pieces", "random"] = "pieces"
    sample_bytes: Count = 1 << 25  # bytes of text to read
    out: str = MISSING  # a new folder

    def perform(self) -> Result:
        """Write `out`, a model that any command reads, and print what its tokens are worth."""
        from plmctl.artifacts.extend import (
            describe_unknown_words,
            open_growable,
            read_sample,
            write_extended,
        )
        from plmctl.text.unknown import count_unknown_words

        self._check_data()
        out = new_folder(self.out)
        source = open_growable(self.checkpoint, self.plugins)
        texts = read_sample(self.data, self.sample_bytes)
        own = source.tokenizer
        tokenizer, pieces = own.extend(texts, tokens=self.tokens, least=self.least)
        write_extended(source, tokenizer, out, pieces=pieces if self.rows == "pieces" else None)
        before, after = (int(each.encode_flat(texts)[1].sum()) for each in (own, tokenizer))
        unknown = count_unknown_words(tokenizer, texts)
        if self.provenance.json:
            counts = {"tokens": len(pieces), "before": before, "after": after}
            tell(json.dumps({"out": self.out, **counts, "unknown_words": len(unknown)}))
            return 0
        first = own.vocab.size
        shown = " ".join(tokenizer.show(range(first, min(first + 8, tokenizer.vocab.size))))
        fewer = 1 - after / max(before, 1)
        lines = [
            f"{self.out}: {len(pieces):,} new tokens, such as {shown}",
            f"the text that they were learned from has {after:,} tokens instead of {before:,}"
            f" ({fewer:.1%} fewer)",
        ]
        if len(pieces) < self.tokens:
            often = f"{self.least} times in it (tokens, least)"
            lines.append(f"no more than {len(pieces):,} stand {often}")
        lines += describe_unknown_words(unknown, self.out)
        start = spell_setting("init", self.out)
        tell("\n".join([*lines, f"next: plmctl pretrain <recipe> {start} data.path=<text>"]))
        return 0

    def _check_data(self) -> None:
        """ConfigError for settings of `data` that are about tokens on disk: none are written."""
        allowed = "null: the text is read once, as it stands, and none of its tokens are kept"
        raise_all(
            ConfigError(f"data.{name}", self.data[name], allowed, fix="leave it out")
            for name in ("segment", "cache_dir")
            if self.data[name] is not None
        )
