"""Tokens that a folder adds to its vocabulary, with the ids that it gives them.

Programs store them outside of the vocabulary: in `added_tokens.json`, in `added_tokens_decoder` of
`tokenizer_config.json`, or in `tokenizer.json` itself. Such a token stands for its own letters in a
text, as the marks of entities do; a token with a role ([SEP], a sentinel) never does.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from plmctl.core.errors import DataError
from plmctl.core.values import Whole
from plmctl.storage.reading import read_json

FILE = "added_tokens.json"
AGAIN = "copy or train it again"
SPARE = 1 << 16  # ids without a token that a tokenizer may have
_UNREACHED = "\uffff"  # a noncharacter, which no text has where a `Rust` guards its special tokens


class Details(TypedDict):
    """A token of `added_tokens_decoder`, or of `added_tokens` in a tokenizer.json."""

    content: str
    single_word: NotRequired[bool]
    lstrip: NotRequired[bool]
    rstrip: NotRequired[bool]
    normalized: NotRequired[bool]
    special: NotRequired[bool]


def check_ids(ids: Collection[int]) -> None:
    """Raise ValueError where the ids of a vocabulary leave more of them free than it has."""
    last = max(ids, default=-1)
    if last + 1 > 2 * len(ids) + SPARE:
        raise ValueError(f"its {len(ids)} tokens have ids up to {last}")


def read_added_tokens(
    folder: Path, config: Mapping[str, Any], special: Collection[str]
) -> list[dict[str, Any]]:
    """The tokens that a folder adds, in the layout of a tokenizer.json, by id.

    Args:
        config: The content of its tokenizer_config.json.

    Raises:
        DataError: Its files give one token two ids, or one id two tokens.
    """
    file = folder / FILE
    listed = read_json(file, dict[str, Whole], fix=AGAIN) if file.is_file() else {}
    stated: dict[str, Details] = config.get("added_tokens_decoder") or {}
    found: dict[str, dict[str, Any]] = {}
    for number, token in [
        *(
            (number, Details(content=content, special=content in special))
            for content, number in listed.items()
        ),
        *((int(number), details) for number, details in stated.items()),
    ]:
        content = token["content"]
        former = found.get(content, {}).get("id", number)
        if former != number:
            what = f"'{content}' has two ids, {former} and {number}"
            raise DataError(what, file=folder, fix=AGAIN)
        found[content] = {"id": number, **token}
    tokens = sorted(found.values(), key=lambda token: token["id"])
    for one, other in pairwise(tokens):
        if one["id"] == other["id"]:
            what = f"'{one['content']}' and '{other['content']}' have the same id, {one['id']}"
            raise DataError(what, file=folder, fix=AGAIN)
    return tokens


def place_tokens(
    spec: Mapping[str, Any], added: Sequence[Mapping[str, Any]], *, kept: Collection[str]
) -> dict[str, Any]:
    """A tokenizer.json in which each of these tokens has its id, whatever ids are left free.

    They stand in the vocabulary of the model too, from where the library takes ids; it numbers all
    others one after another.

    Args:
        added: Tokens with their ids, in addition to the tokens that it lists itself.
        kept: Tokens that never stand for text.

    Raises:
        ValueError: The vocabulary gives an id to another token, or a token another id.
    """
    changed: dict[str, Any] = copy.deepcopy(dict(spec))
    vocab = changed["model"]["vocab"]
    ids = {piece[0]: n for n, piece in enumerate(vocab)} if isinstance(vocab, list) else {**vocab}
    own, tokens = set(ids), {number: token for token, number in ids.items()}
    listed = {token["content"]: token for token in changed["added_tokens"]}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "special": False}
    for token in added:
        normalized = not token.get("special", False)
        listed.setdefault(token["content"], {**plain, "normalized": normalized, **token})
    for content, token in listed.items():
        for number in {token["id"], *(t["id"] for t in added if t["content"] == content)}:
            if ids.get(content, number) != number or tokens.get(number, content) != content:
                other = f", and '{tokens[number]}' too" if number in tokens else ""
                raise ValueError(f"its added token '{content}' has id {number}{other}")
            ids[content], tokens[number] = number, content
        # a token that the folder adds may stand in a text
        token["special"] = content in kept or (token["special"] and content in own)
    check_ids(tokens)
    changed["added_tokens"] = sorted(listed.values(), key=lambda token: token["id"])
    if isinstance(vocab, list):
        behind = range(len(vocab), max(tokens) + 1)
        vocab += [[tokens.get(n, f"[unused id {n}]"), 0.0] for n in behind]
    else:
        changed["model"]["vocab"] = ids
    return changed


def hide_tokens(spec: Mapping[str, Any], special: Collection[str]) -> dict[str, Any]:
    """A tokenizer.json that gives every text without U+FFFF the same ids, but never one of these
    tokens: the vocabulary spells them as no text can.
    """
    changed: dict[str, Any] = copy.deepcopy(dict(spec))
    model = changed["model"]
    hidden = {token: f"{_UNREACHED}{token}" for token in special}
    if isinstance(model["vocab"], list):
        model["vocab"] = [[hidden.get(piece, piece), score] for piece, score in model["vocab"]]
    else:
        model["vocab"] = {hidden.get(token, token): n for token, n in model["vocab"].items()}
    if isinstance(model.get("unk_token"), str):
        model["unk_token"] = hidden.get(model["unk_token"], model["unk_token"])
    if "merges" in model:
        inner = len(model.get("continuing_subword_prefix") or "")
        model["merges"] = [
            [left, right]
            for left, right in model["merges"]
            if hidden.keys().isdisjoint((left, right, left + right[inner:]))
        ]
    changed["added_tokens"] = [
        token for token in changed["added_tokens"] if token["content"] not in hidden
    ]
    changed["post_processor"] = None
    return changed
