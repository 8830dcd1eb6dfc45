"""The vocabulary of fairseq's RoBERTa and BART: `dict.txt` numbers the tokens of GPT-2's files
`encoder.json` and `vocab.bpe` anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

WORDS, IDS, MERGES = "dict.txt", "encoder.json", "vocab.bpe"
HOME = "https://dl.fbaipublicfiles.com/fairseq/gpt2_bpe/"
FIRST = ("<s>", "<pad>", "</s>", "<unk>")


def renumber(lines: Sequence[str], ids: Mapping[str, int]) -> dict[str, int]:
    """{token: its id} of a dictionary whose lines have the ids of another vocabulary as text.

    Args:
        lines: The lines of dict.txt: `<id> <count>`.
        ids: {token: id} of the other vocabulary (encoder.json).
    """
    tokens = {str(number): token for token, number in ids.items()}
    names = [line.rsplit(" ", 1)[0] for line in lines if line.strip()]
    ordered = [*FIRST, *(tokens.get(name, name) for name in names), "<mask>"]
    return {token: number for number, token in enumerate(ordered)}
