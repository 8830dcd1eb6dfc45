"""`plmctl count`: the most frequent words of a text."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from plmctl.config.build import MISSING
from plmctl.config.command import About, Command, Result
from plmctl.core.terminal import tell
from plmctl.core.values import Count


@dataclass(frozen=True)
class CountWords(Command):
    """Count the words of a text."""

    about = About(
        "count",
        place=300,
        examples=("plmctl count README.md", "plmctl count README.md top=3 --json"),
        bare="text",
        metavar="FILE",
        options="json print_config config_dir plugin",
    )

    text: str = MISSING  # the file
    top: Count = 10  # words, the most frequent first

    def perform(self) -> Result:
        """Print the words with their numbers."""
        words = Counter(Path(self.text).read_text(encoding="utf-8").split())
        found = dict(words.most_common(self.top))
        if self.provenance.json:
            tell(json.dumps(found, ensure_ascii=False))
        else:
            tell("\n".join(f"{number:8} {word}" for word, number in found.items()))
        return found
