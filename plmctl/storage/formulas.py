"""Cells that a spreadsheet would run: a text of somebody that begins with =, +, -, @, a tab or the
end of a line. A ' before it makes it text; numbers stay as they are.

Source: OWASP, "CSV Injection".
"""

from __future__ import annotations

import re

_RUN = re.compile(r"'*[=+\-@\t\r]")  # those with a ' before it get one more, so that all come back
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def guard(text: str) -> str:
    """The text as a spreadsheet shows it; `unguard` gives `text` again."""
    runs = _RUN.match(text) and not _NUMBER.fullmatch(text)
    return f"'{text}" if runs else text


def unguard(text: str) -> str:
    """The text that `guard` was given."""
    return text[1:] if text.startswith("'") and _RUN.match(text) else text
