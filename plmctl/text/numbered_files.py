"""The published folders of tokenizers whose vocab.json numbers the pieces that other files cut."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from plmctl.core.errors import DataError, UsageError
from plmctl.core.values import Whole
from plmctl.storage.atomic import write_bytes, write_text
from plmctl.storage.gate import admit
from plmctl.storage.reading import read_bytes, read_json
from plmctl.text import languages, moses_words
from plmctl.text.added import AGAIN
from plmctl.text.languages import list_languages, name_languages
from plmctl.text.numbered import LANGUAGE, MERGES, NUMBERS, SOURCE, TARGET, NumberedBackend
from plmctl.text.roles import NAMES, Roles

M2M_MODEL = "sentencepiece.bpe.model"
_SMALL = "BlenderbotSmall"
# M2M-100's languages by the setting `language_codes`
_LANGUAGES = {"m2m100": languages.M2M_100, "wmt21": languages.WMT_21}
_M2M_CLASS = "M2M100Tokenizer"
# the special tokens where no file names them
_MARIAN = Roles(eos="</s>", pad="<pad>", unk="<unk>", single=("A", "eos"), pair=("A", "B", "eos"))
_M2M_100 = replace(_MARIAN, bos="<s>", sep="</s>")
_XLM = Roles(
    bos="<s>",
    eos="</s>",
    pad="<pad>",
    unk="<unk>",
    cls="</s>",
    sep="</s>",
    mask="<special1>",
    single=("bos", "A", "sep"),
    pair=("bos", "A", "sep", "B", "sep"),
)
_SPECIAL = re.compile(r"<special\d+>")  # XLM's tokens without a meaning yet
_BLENDERBOT = Roles(
    bos="__start__",
    eos="__end__",
    pad="__null__",
    unk="__unk__",
    single=("A",),
    pair=("A", "B"),
    target=("A", "eos"),
)


def find_parts(
    files: Mapping[str, Path], model: Path | None, config: Mapping[str, Any], kind: object
) -> dict[str, Path]:
    """The files of such a tokenizer, by their names in a `NumberedBackend`; none where the folder
    has another one.

    Args:
        model: Its sentencepiece model.
        config: The content of its tokenizer_config.json.
        kind: The `model_type` of its config.json.
    """
    if SOURCE in files or TARGET in files:
        return {name: files.get(name, Path(name)) for name in (NUMBERS, SOURCE, TARGET)}
    if NUMBERS not in files:
        return {}
    if model is not None and MERGES not in files:
        return {NUMBERS: files[NUMBERS], SOURCE: model}
    if MERGES in files and moses_words.name_class(config, kind):
        return {NUMBERS: files[NUMBERS], MERGES: files[MERGES]}
    small = kind == "blenderbot-small" or str(config.get("tokenizer_class")).startswith(_SMALL)
    if small and MERGES in files:
        return {NUMBERS: files[NUMBERS], MERGES: files[MERGES]}
    return {}


def read(
    parts: Mapping[str, Path],
    config: Mapping[str, Any],
    added: Sequence[Mapping[str, Any]],
    folder: Path,
    model: Mapping[str, Any],
) -> tuple[NumberedBackend, Roles]:
    """The tokenizer of these files, and the roles of its special tokens.

    Args:
        parts: The files that `find_parts` returns.
        config: The content of tokenizer_config.json.
        added: The tokens that the folder adds, with their ids.
        folder: The folder, for messages.
        model: The content of its config.json.

    Raises:
        DataError: A file is missing, or a target has a vocabulary of its own.
    """
    missing = [name for name, file in parts.items() if not file.is_file()]
    if missing:
        what = f"this tokenizer needs {', '.join(parts)}; missing: {', '.join(missing)}"
        raise DataError(what, file=folder, fix="download the whole model folder")
    if config.get("separate_vocabs"):
        what = (
            "targets have a vocabulary of their own (separate_vocabs), which plmctl does not read"
        )
        raise DataError(what, file=folder, fix="take a model with one vocabulary")
    numbers = read_json(parts[NUMBERS], dict[str, Whole], fix=AGAIN)
    contents = {
        name: read_bytes(file, fix=AGAIN) for name, file in parts.items() if name != NUMBERS
    }
    usual = _BLENDERBOT if MERGES in parts else _MARIAN if TARGET in parts else _M2M_100
    if name := moses_words.name_class(config, model.get("model_type")):
        usual, numbers = _XLM, numbers | _number_added(added, numbers, folder)
        rules = moses_words.read_rules(name, config, model)
        contents[moses_words.RULES] = json.dumps(rules).encode()
    special = _name(usual, config)
    if usual is _M2M_100:
        numbers |= _number_languages(config, added, len(numbers))
        special = name_languages(special, {**config, "tokenizer_class": _M2M_CLASS}, numbers)
    if usual is _XLM:
        spare = [t for t in numbers if _SPECIAL.fullmatch(t) and t != special.mask]
        special = replace(special, unused=tuple(spare))
    unknown = special.unk or ""
    if lost := [t for t in (special.pad, unknown, special.eos) if t not in numbers]:
        what = f"no {', '.join(map(str, lost))} among its {len(numbers):,} tokens"
        raise DataError(what, file=parts[NUMBERS], fix=AGAIN)
    return NumberedBackend(numbers, contents, unknown), special


def write(folder: Path, backend: NumberedBackend, special: Roles, model_max_length: int) -> None:
    """Write the files that the published class reads.

    Raises:
        UsageError: The class knows no such languages.
    """
    names = {f"{name}_token": getattr(special, name) for name in NAMES if getattr(special, name)}
    config: dict[str, Any] = {"model_max_length": model_max_length, **names}
    numbers, parts = backend.numbers, dict(backend.parts)
    if moses_words.RULES in parts:
        config |= moses_words.write_rules(json.loads(parts.pop(moses_words.RULES)))
    elif MERGES in parts:
        config["tokenizer_class"] = f"{_SMALL}Tokenizer"
    elif TARGET in parts:
        config["tokenizer_class"] = "MarianTokenizer"
    else:
        config["tokenizer_class"] = _M2M_CLASS
        parts = {M2M_MODEL: parts[SOURCE]}
        config |= _spell_languages(backend, special)
        numbers = {token: n for token, n in numbers.items() if token not in backend.spoken}
    admit(folder).mkdir(parents=True, exist_ok=True)
    write_text(folder / NUMBERS, json.dumps(numbers, indent=1, ensure_ascii=False) + "\n")
    for name, content in parts.items():
        write_bytes(folder / name, content)
    text = json.dumps(config, indent=1, ensure_ascii=False) + "\n"
    write_text(folder / "tokenizer_config.json", text)


def _name(usual: Roles, config: Mapping[str, Any]) -> Roles:
    """The roles with the spellings that a tokenizer_config.json gives."""
    own: dict[str, Any] = {}
    for name in NAMES:
        value = config.get(f"{name}_token")
        spelled = value["content"] if isinstance(value, Mapping) else value
        if spelled is not None and getattr(usual, name) is not None:
            own[name] = spelled
    return replace(usual, **own)


def _number_added(
    added: Sequence[Mapping[str, Any]], known: Mapping[str, int], folder: Path
) -> dict[str, int]:
    """The ids of special tokens that a folder adds; DataError for one that stands for text."""
    new = {str(t["content"]): int(t["id"]) for t in added if t["content"] not in known}
    words = [t["content"] for t in added if t["content"] in new and not t.get("special")]
    if words:
        what = f"it adds {', '.join(map(repr, words[:3]))} to the words of its vocabulary"
        fix = "take a tokenizer without them"
        raise DataError(f"{what}, which plmctl does not read here", file=folder, fix=fix)
    return new


def _number_languages(
    config: Mapping[str, Any], added: Sequence[Mapping[str, Any]], first: int
) -> dict[str, int]:
    """The ids of M2M-100's languages. A folder may state them; otherwise they begin at `first`, in
    the order of the class.
    """
    stated = {str(token["content"]): int(token["id"]) for token in added if token["id"] >= first}
    if any(map(LANGUAGE.fullmatch, stated)):
        return stated
    codes = _LANGUAGES.get(str(config.get("language_codes")), languages.M2M_100)
    return {f"__{code}__": first + place for place, code in enumerate(codes)} | stated


def _spell_languages(backend: NumberedBackend, special: Roles) -> dict[str, Any]:
    """The settings of M2M-100's class for the languages of a vocabulary."""
    codes = tuple(token.strip("_") for token in backend.spoken)
    known = next((name for name, listed in _LANGUAGES.items() if listed == codes), None)
    if known is None or backend.tokens[-len(codes) :] != backend.spoken:
        what = f"{_M2M_CLASS} has lists of its own, and not these {len(codes)} languages"
        raise UsageError(f"{what}, so that this tokenizer cannot be written to such a folder")
    sides = {"src_lang": special.single, "tgt_lang": special.target}
    named = {
        key: token.strip("_") for key, order in sides.items() for token in list_languages(order)
    }
    return {"language_codes": known, **named}
