"""Names without what differs in their spelling alone."""

from __future__ import annotations

import re
import unicodedata


def fold_name(name: str) -> str:
    """`name` without what may differ in its spelling alone: case, and spaces, - and _ in it."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    return " ".join(re.split(r"[\s_-]+", plain)).strip()
