"""The vocabulary of fairseq's RoBERTa and BART: `dict.txt` numbers the tokens of GPT-2's files
`encoder.json` and `vocab.bpe` anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from plmctl.core.errors import DataError

WORDS, IDS, MERGES = "dict.txt", "encoder.json", "vocab.bpe"
HOME = "https://dl.fbaipublicfiles.com/fairseq/gpt2_bpe/"
FIRST = ("<s>", "<pad>", "</s>", "<unk>")


def renumber(lines: Sequence[str], ids: Mapping[str, int], file: Path) -> dict[str, int]:
    """{token: its id} of a dictionary whose lines have the ids of another vocabulary as text.

    Args:
        lines: The lines of dict.txt: `<id> <count>`.
        ids: {token: id} of the other vocabulary (encoder.json).
        file: dict.txt.

    Raises:
        DataError: The dictionary lacks tokens of the other vocabulary.
    """
    tokens = {str(number): token for token, number in ids.items()}
    names = [line.rsplit(" ", 1)[0] for line in lines if line.strip()]
    known = {*names}
    if lacking := [number for number in tokens if number not in known]:
        what = f"{len(lacking):,} tokens of {IDS} have no line, the first of them {lacking[0]}"
        raise DataError(what, file=file, fix=f"take {WORDS} from {HOME}")
    ordered = [*FIRST, *(tokens.get(name, name) for name in names), "<mask>"]
    return {token: number for number, token in enumerate(ordered)}
