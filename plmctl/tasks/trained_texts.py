"""The texts that a run was trained on, and their bundles, as hashes, which its folder keeps."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from plmctl.core.errors import ConfigError, DataError
from plmctl.core.terminal import counted
from plmctl.storage.atomic import write_bytes, write_text
from plmctl.storage.reading import read_json
from plmctl.tasks.record import Example, Examples
from plmctl.text import hanzi

FILE = "trained_texts.bin"  # a file of a run, 8 bytes a text
FORMS = "trained_forms.json"  # how many of them are in each form of Chinese
BUNDLES = "trained_bundles.bin"  # alike, of the values of task.columns.bundle


def hash_texts(examples: Examples) -> np.ndarray:
    """8 bytes of BLAKE2b of the texts of each example, without its label and its answers.

    Returns:
        `[n]` uint64, in the order of the examples.
    """
    return _hash(map(_join, examples))


def hash_questions(examples: Examples) -> np.ndarray:
    """As `hash_texts`; choices in another order are the same question."""
    return _hash(_join(each, sort=True) for each in examples)


def hash_contexts(examples: Examples) -> np.ndarray:
    """Hashes of the passages that examples have questions on; empty where they have none."""
    found = map(_find_context, examples)
    return _hash(dict.fromkeys(context for context in found if context))


def hash_bundles(examples: Examples) -> np.ndarray:
    """Hashes alike of the bundle of each example."""
    return _hash(example.bundle for example in examples)


def keep_trained(run: Path, examples: Examples, *, bundled: bool = False) -> None:
    """Write the hashes of the training examples into the folder of their run, each once, and the
    number of Chinese ones by form.

    Args:
        bundled: Whether a column has their bundles, so that other files have the same ones.
    """
    write_bytes(run / FILE, np.unique(hash_texts(examples)).tobytes())
    forms = count_text_forms(examples)
    if any(forms.get(form) for form in hanzi.FORMS):
        write_text(run / FORMS, json.dumps(forms) + "\n")
    if bundled:
        named = hash_bundles([each for each in examples if each.bundle])
        write_bytes(run / BUNDLES, np.unique(named).tobytes())


def count_text_forms(examples: Examples) -> Counter[str]:
    """{form of Chinese: the examples that are mostly in it}; "" is neither."""
    return Counter(hanzi.find_main_form(_join(each)) for each in examples)


def read_trained_forms(home: Path) -> Mapping[str, int]:
    """`count_text_forms` of the training texts of a run; {} where the file is missing."""
    file = home / FORMS
    found: Mapping[str, int] = read_json(file, fix=f"rm {file}") if file.is_file() else {}
    return found


def read_trained(home: Path, name: str = FILE) -> np.ndarray | None:
    """The sorted hashes of the training examples of a run, or of the model of another folder;
    None where that file is missing.

    Args:
        name: `FILE`, or `BUNDLES` for those of their bundles.

    Raises:
        DataError: The file is damaged.
    """
    file = home / name
    if not file.is_file():
        return None
    try:
        return np.frombuffer(file.read_bytes(), dtype="<u8")
    except (OSError, ValueError) as error:
        what = "the hashes of the training texts cannot be read"
        raise DataError(what, file=file, fix=f"rm {file}") from error


def is_trained_part(trained: np.ndarray, train: Examples) -> bool:
    """Whether all that a run was trained on is in these examples."""
    return bool(np.isin(trained, hash_texts(train)).all())


def count_trained(trained: np.ndarray, examples: Examples) -> int:
    """The number of examples with texts that a run was trained on."""
    return int(np.isin(hash_texts(examples), trained).sum())


def find_known_bundles(home: Path, examples: Examples) -> np.ndarray:
    """Whether a model was trained on other rows of the bundle of each example; false of all where
    its folder has no hashes of bundles.

    Returns:
        `[n]` bool.
    """
    trained = read_trained(home, BUNDLES)
    named = np.array([bool(example.bundle) for example in examples], dtype=bool)
    known = np.isin(hash_bundles(examples), [] if trained is None else trained)
    return named & known


def leave_trained(home: Path, examples: Examples) -> tuple[list[Example], str]:
    """The examples with texts and bundles that a model was not trained on, and a sentence on the
    others.

    Args:
        home: The folder with the hashes of its training texts.

    Raises:
        ConfigError: There are no hashes.
        DataError: The model was trained on all of the texts.
    """
    trained = read_trained(home)
    if trained is None:
        allowed = f"null: {home} keeps no hashes of its training texts ({FILE})"
        raise ConfigError("only", "unseen", allowed, fix="only=null")
    seen = np.isin(hash_texts(examples), trained)
    known = find_known_bundles(home, examples) & ~seen
    rest = [each for each, left in zip(examples, seen | known, strict=True) if not left]
    if not rest:
        what = f"all of these {counted(len(examples), 'row')} were trained on by {home}"
        what += f", {known.sum():,} of them as other rows of their bundles" if known.any() else ""
        place = examples[0].place.rpartition(":")[0]
        raise DataError(what, file=place, fix="task.path=<a file with other rows>")
    others = [f"the other {seen.sum():,}"] if seen.any() else []
    others += [f"bundles of {known.sum():,}{' more' if seen.any() else ''}"] if known.any() else []
    counts = f"{len(rest):,} of {len(examples):,} rows are scored"
    line = f"{counts}: {home} was trained on {' and on '.join(others) or 'no other'}"
    return rest, "; ".join(filter(None, (line, describe_unknown_bundles(home, examples))))


def describe_unknown_bundles(home: Path, examples: Examples) -> str:
    """A sentence where the bundles of examples, or of training, are not known; "" elsewhere."""
    kept, named = (home / BUNDLES).is_file(), any(example.bundle for example in examples)
    if kept and not named:
        return "their bundles are not known, as they have no column of bundles"
    return f"{home} does not say which bundles it was trained on" if named and not kept else ""


def describe_known_bundles(known: Examples, checkpoint: object) -> str:
    """A sentence on scored examples whose bundles a model was trained on; "" for none."""
    if not known:
        return ""
    many = counted(len({example.bundle for example in known}), "bundle")
    return (
        f"{counted(len(known), 'row')} of {many} that {checkpoint} was trained on, too: their score"
        " does not say how new bundles are answered"
    )


def describe_trained(count: int, examples: int, checkpoint: object, *, single: bool = False) -> str:
    """A sentence on scored examples that a model was trained on; "" for none.

    Args:
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


def _hash(texts: Iterable[str]) -> np.ndarray:
    digests = (hashlib.blake2b(text.encode(errors="replace"), digest_size=8) for text in texts)
    return np.frombuffer(b"".join(each.digest() for each in digests), dtype="<u8")


def _join(example: Example, *, sort: bool = False) -> str:
    own = {name: value for name, value in example.fields.items() if name != "answers"}
    if sort and "choices" in own:
        own["choices"] = sorted(own["choices"])
    return "\t".join(map(str, own.values()))


def _find_context(example: Example) -> str:
    """Its passage: the context of a question, or the text of choices."""
    own = example.fields
    return str(own.get("context") or (own.get("text") if "choices" in own else "") or "")
