"""The texts that a run was trained on, as hashes, which its folder keeps."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from plmctl.core.errors import ConfigError, DataError
from plmctl.core.terminal import counted
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


def read_trained(home: Path) -> np.ndarray | None:
    """The sorted hashes of the training examples of a run, or of the model of another folder;
    None where that file is missing.

    Raises:
        DataError: The file is damaged.
    """
    if not (home / FILE).is_file():
        return None
    try:
        return np.frombuffer((home / FILE).read_bytes(), dtype="<u8")
    except (OSError, ValueError) as error:
        what = "the hashes of the training texts cannot be read"
        raise DataError(what, file=home / FILE, fix=f"rm {home / FILE}") from error


def is_trained_part(trained: np.ndarray, train: Sequence[Example]) -> bool:
    """Whether all that a run was trained on is in these examples."""
    return bool(np.isin(trained, hash_texts(train)).all())


def count_trained(trained: np.ndarray, examples: Sequence[Example]) -> int:
    """The number of examples with texts that a run was trained on."""
    return int(np.isin(hash_texts(examples), trained).sum())


def leave_trained(home: Path, examples: Sequence[Example]) -> tuple[list[Example], str]:
    """The examples with texts that a model was not trained on, and a sentence on the others.

    Args:
        home: The folder with the hashes of its training texts.
        examples: The examples.

    Raises:
        ConfigError: There are no hashes.
        DataError: The model was trained on all of the texts.
    """
    trained = read_trained(home)
    if trained is None:
        allowed = f"null: {home} keeps no hashes of its training texts ({FILE})"
        raise ConfigError("only", "unseen", allowed, fix="only=null")
    seen = np.isin(hash_texts(examples), trained)
    rest = [each for each, known in zip(examples, seen, strict=True) if not known]
    if not rest:
        what = f"all of these {counted(len(examples), 'row')} were trained on by {home}"
        place = examples[0].place.rpartition(":")[0]
        raise DataError(what, file=place, fix="task.path=<a file with other rows>")
    others = f"the other {seen.sum():,}" if seen.any() else "no other"
    counts = f"{len(rest):,} of {len(examples):,} rows are scored"
    return rest, f"{counts}: {home} was trained on {others}"


def describe_trained(count: int, examples: int, checkpoint: object, *, single: bool = False) -> str:
    """A sentence on scored examples that a model was trained on; "" for none.

    Args:
        count: The number of them.
        examples: The number of all examples.
        checkpoint: The model.
        single: Whether a setting can leave them out, as of a single model.
    """
    if not count:
        return ""
    has = "has" if count == 1 else "have"
    rest = "; only=unseen scores the others" if single and count < examples else ""
    return (
        f"{count:,} of {examples:,} rows {has} a text that {checkpoint} was trained on:"
        f" their score says what it learnt by heart{rest}"
    )


def _join(example: Example) -> str:
    values = (str(value) for name, value in example.fields.items() if name != "answers")
    return "\t".join(values)
