"""Names without what differs in their spelling alone."""

from __future__ import annotations

import re
import unicodedata

# spaces in a name, but between two digits
_INNER = re.compile(r"(?<=[^\W\d]) (?=\w)|(?<=\w) (?=[^\W\d])")


def fold_name(name: str) -> str:
    """`name` without what may differ in its spelling alone: case, and spaces, - and _ in it, also
    where the other has none. Between two digits, and as the sign of a number, they count.
    """
    plain = unicodedata.normalize("NFKC", name).casefold().strip()
    if is_number(plain):
        return plain
    return _INNER.sub("", " ".join(re.split(r"[\s_-]+", plain)).strip())


def is_number(name: str) -> bool:
    """Whether a name is a number."""
    try:
        float(name)
    except ValueError:
        return False
    return True
