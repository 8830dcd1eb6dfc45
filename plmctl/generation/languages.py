"""The languages that a model of several reads and writes: each is a token of its tokenizer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from plmctl.core.errors import ConfigError, find_meant, list_some, nearest
from plmctl.core.spelling import spell_setting
from plmctl.models.base import Backbone
from plmctl.models.encoder_decoder import LAST
from plmctl.text.languages import list_languages, spell_language
from plmctl.text.vocab import ROLES, Vocab

# the usual spellings: de_DE, deu_Latn, __de__
_USUAL = re.compile(r"[a-z]{2,3}_[A-Z][A-Za-z]+|__[a-z]+__")


def find_language(template: Sequence[str]) -> str | None:
    """The token of a template that has no role."""
    return next(iter(list_languages(template)), None)


def name_language(
    template: Sequence[str], language: str | None, vocab: Vocab, *, start: object, path: str
) -> tuple[str, ...]:
    """A template with the token of another language; None: as it is.

    A template without a language gets mBART's order, "A eos language", where the decoder begins
    with the last token of a text (`start`).

    Raises:
        ConfigError: The vocabulary has no such language, or the model reads none; it names `path`.
    """
    if language is None:
        return tuple(template)
    language = find_token(language, vocab, path)
    own = find_language(template)
    if own is not None:
        return tuple(language if name == own else name for name in template)
    if start != LAST:
        allowed = "null: this tokenizer writes no language around a text"
        raise ConfigError(path, language, allowed, fix=f"{path}=null")
    return ("A", "eos", language)


def find_token(language: str, vocab: Vocab, path: str) -> str:
    """The token of a language: its name, or M2M-100's form of it, `__de__` for de.

    Raises:
        ConfigError: The vocabulary lacks it; the fix is a token that begins alike, or the nearest.
    """
    roles = {getattr(vocab, role) for role in ROLES}
    known = [
        token
        for number, token in enumerate(vocab.tokens)
        if number not in roles and (vocab.special[number] or _USUAL.fullmatch(token))
    ]
    if (token := spell_language(language, known)) is not None:
        return token
    alike = [token for token in known if token.startswith(f"{language}_")]
    shown = list_some(known) or "none"
    allowed = f"a token of this tokenizer: {shown}{nearest(language, known)}"
    meant = next((each for each in (*alike, find_meant(language, known)) if each), None)
    fix = spell_setting(path, meant)
    if known and meant is None:  # the first of a list would be a language that nobody meant
        fix = f"{path} is a code, such as {', '.join(each.strip('_') for each in known[:3])}"
    raise ConfigError(path, language, allowed, fix=fix)


def choose_opening(
    backbone: Backbone, language: str | None, vocab: Vocab, *, path: str
) -> tuple[int, ...]:
    """The first tokens of a text in a language; none: as the model forces.

    Raises:
        ConfigError: The model writes no language, or another one alone.
    """
    if language is None:
        return ()
    if backbone.writes != "target":
        allowed = "null: this model goes on with a text, and has no encoder"
        raise ConfigError(path, language, allowed, fix=f"{path}=null")
    start = getattr(backbone, "start", None)
    number = vocab.id(find_token(language, vocab, path))
    if start == number:
        return ()
    if start != LAST and start not in {getattr(vocab, role) for role in ROLES}:
        only = vocab.tokens[start] if isinstance(start, int) else start
        allowed = f"{only}, the language with which this decoder begins (model.start)"
        raise ConfigError(path, language, allowed, fix=f"{path}=null")
    return (number,)
