"""The texts that a run was trained on, as hashes, which its folder keeps."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from plmctl.core.errors import DataError
from plmctl.storage.atomic import write_bytes
from plmctl.tasks.record import Example

FILE = "trained_texts.bin"  # a file of a run, 8 bytes a text


def hash_texts(examples: Sequence[Example]) -> np.ndarray:
    """8 bytes of BLAKE2b of the texts of each example, without its label and its answers.

    Returns:
        `[n]` uint64, in the order of the examples.
    """
    digests = b"".join(
        hashlib.blake2b(_join(example).encode(errors="replace"), digest_size=8).digest()
        for example in examples
    )
    return np.frombuffer(digests, dtype="<u8")


def keep_trained(run: Path, examples: Sequence[Example]) -> None:
    """Write the hashes of the training examples into the folder of their run, each once."""
    write_bytes(run / FILE, np.unique(hash_texts(examples)).tobytes())


def read_trained(run: Path | None) -> np.ndarray | None:
    """The sorted hashes of the training examples of a run; None for runs without that file.

    Raises:
        DataError: The file is damaged.
    """
    if run is None or not (run / FILE).is_file():
        return None
    try:
        return np.frombuffer((run / FILE).read_bytes(), dtype="<u8")
    except (OSError, ValueError) as error:
        what = "the hashes of the training texts cannot be read"
        raise DataError(what, file=run / FILE, fix=f"rm {run / FILE}") from error


def is_trained_part(trained: np.ndarray, train: Sequence[Example]) -> bool:
    """Whether all that a run was trained on is in these examples."""
    return bool(np.isin(trained, hash_texts(train)).all())


def count_trained(trained: np.ndarray, examples: Sequence[Example]) -> int:
    """The number of examples with texts that a run was trained on."""
    return int(np.isin(hash_texts(examples), trained).sum())


def describe_trained(count: int, examples: int, checkpoint: object) -> str:
    """A sentence on scored examples that a model was trained on; "" for none."""
    if not count:
        return ""
    seen = "was" if count == 1 else "were"
    return (
        f"{count:,} of {examples:,} rows {seen} trained on by {checkpoint}:"
        " their score says what it learnt by heart"
    )


def _join(example: Example) -> str:
    values = (str(value) for name, value in example.fields.items() if name != "answers")
    return "\t".join(values)
