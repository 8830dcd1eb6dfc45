"""Fixes as one pastes them into a shell: words that are typed first, all others behind #."""

from __future__ import annotations

import re
import shlex

from plmctl.core.spelling import spell_word

# with one of these a line begins that is no list of settings, and its words last up to prose
_PROGRAMS = re.compile(
    "plmctl|python|pip|hf|huggingface-cli|git|curl|iconv|export|unset|head|tr|cp|bunzip2|unxz|unzip"
)
_SCRIPTS = ("for ", "gzip ", "bzip2 ", "xz ", "sed ", "printf ")  # such a line stays as it is
_FILTERS = frozenset(["iconv", "head", "tr"])  # write what they read to a file behind >
_SETTING = re.compile(r"[~+]{0,2}[A-Za-z_][\w@./-]*=.+|--?[a-z][\w-]*", re.DOTALL)
_FLAG = re.compile(r"-m|--multirun|--resume|--dry-run|--no-\w+|.*=.*", re.DOTALL)
_PROSE = re.compile(  # ends a program's line
    "or|and|then|for|where|to|with|without|if|as|is|in|of|on|by|that|which|what|instead|says"
    "|shows|lists|writes|keeps|makes|gives|alone|again|from|first|before"
)
_URGES = frozenset(["give", "set", "add", "use", "try", "say", "take"])  # to type what follows
_QUOTED = re.compile(r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\.""", re.DOTALL)
_PIECE = re.compile(  # quotes (an apostrophe inside a word is none), a placeholder, a sign
    r"""(?<!\w)'[^']*'|(?<!\w)"(?:[^"\\]|\\.)*"|<[A-Za-z][^<>]*>|\\."""
    r"|(?P<space>\s)|(?P<more>[\[({])|(?P<less>[\])}])|.",
    re.DOTALL,
)
_CHANGED = re.compile(r"""[][\s<>|;&(){}$`*?!#'"]""")  # by a shell, outside quotes
_CHOICES = re.compile(r"<([\w-]+)((?: or [\w-]+)+)>")
_PLACEHOLDER = re.compile(
    rf"{_QUOTED.pattern}|<(?:(?:an?|the|its|your|of|whole) )*(?P<name>[^<>]*)>", re.DOTALL
)
_MORE = re.compile(r",? (?:of|with|that|which|whose|for|where|on|in|or|made|from|to)\b|[,:]")
_LONG = 3  # words of a placeholder beyond which its first noun stands for it
_FIX = re.compile(r"(?<=\n  fix: ).*")


def spell_fix(text: str) -> str:
    """A fix as one pastes it: the words that are typed, and behind # what else there is to say.

    Values that only the user knows, such as `<a file>`, become a word in capitals, FILE; the
    comment explains the word of a long one. The first of choices, `<beam or sample>`, is written.
    Prose alone is a comment. A line that is spelled so stays as it is.

    Example:
        >>> spell_fix("size.width=64, or init=<a run>")
        "size.width=64  # or init=<a run>"
    """
    if not text or text.startswith(("#", *_SCRIPTS)):
        return text
    others = "".join(more for _, more in _CHOICES.findall(text)).strip()
    words, rest = _split(_CHOICES.sub(r"\1", text))
    if words and others:
        rest = f"{others}; {rest}" if rest else others
    if not words:
        words, rest = _put_first(text)
    rest = "; ".join(filter(None, (*_explain(text[: len(text) - len(rest)], words), rest)))
    return "  ".join(filter(None, (" ".join(words), f"# {rest}" if rest else "")))


def _put_first(text: str) -> tuple[list[str], str]:
    """The typed words at the end of prose, "a larger file, or train.steps=9" or "name it: x=y",
    and the prose.
    """
    if " " not in text:
        word = _spell(text, [])
        return ([word], "") if word else ([], text)
    for sign in (": ", ", or ", " or "):
        before, found, last = text.rpartition(sign)
        words, more = _split(last) if found else ([], "")
        if words and not more:
            return words, before if sign == ": " else f"or {before}"
    return [], text


def spell_fixes(message: str) -> str:
    """The message of an error with each of its fixes spelled."""
    return _FIX.sub(lambda found: spell_fix(found[0]), message)


def _split(text: str) -> tuple[list[str], str]:
    """The words at the beginning that are typed, spelled for a shell; the rest."""
    words: list[str] = []
    at, belongs = 0, _belongs_to_settings
    while at < len(text):
        end = _end_of_word(text, at)
        word = text[at:end].rstrip(",;:")
        after = end + len(text[end:]) - len(text[end:].lstrip())
        if not words and _PROGRAMS.fullmatch(word):
            belongs = _belongs_to_program
        if not words and word in _URGES and _SETTING.match(text, after):
            at = after
            continue
        spelled = _spell(word, words) if belongs(word, words) else ""
        if not spelled:
            break
        words.append(spelled)
        stops, at = at + len(word) < end, after
        if stops:
            break
    return words, text[at:].strip(" ,;:#").removesuffix(", or") if words else text


def _belongs_to_settings(word: str, before: list[str]) -> bool:
    """Whether a word is a setting, an option, or the value of the option before it."""
    valued = bool(before) and before[-1].startswith("-") and not _FLAG.fullmatch(before[-1])
    return bool(_SETTING.fullmatch(_unquote(_fill(word)))) or (
        valued and not _PROSE.fullmatch(word)
    )


def _belongs_to_program(word: str, before: list[str]) -> bool:
    """Whether a word is still one of a program's line."""
    return not _PROSE.fullmatch(word) and not word.startswith(("(", "#"))


def _end_of_word(text: str, at: int) -> int:
    """Where the word that begins at `at` ends: at a space outside quotes, placeholders, and
    brackets of its value.
    """
    depth, valued = 0, False
    for piece in _PIECE.finditer(text, at):
        if piece["space"] and depth <= 0:
            return piece.start()
        valued = valued or piece[0] == "="
        depth += valued * (bool(piece["more"]) - bool(piece["less"]))
    return len(text)


def _spell(word: str, before: list[str]) -> str:
    """A word with placeholders in capitals, in quotes where a shell would change it; "" for one
    that no shell reads.
    """
    if word in ("<", ">") and before and before[0] in _FILTERS:
        return word
    word = _fill(word)
    if not _unquote(word):
        return ""
    return spell_word(word) if _CHANGED.search(_QUOTED.sub("", word)) else word


def _fill(word: str) -> str:
    """`a=<a file of lines>` as a=FILE_OF_LINES; what stands in quotes stays."""
    return _PLACEHOLDER.sub(lambda found: _name(found["name"] or "") or found[0], word)


def _name(placeholder: str) -> str:
    """The word in capitals that stands for a placeholder."""
    if _is_long(placeholder):
        placeholder = _MORE.split(placeholder, maxsplit=1)[0]
    return re.sub(r"\W+", "_", placeholder).strip("_").upper()


def _explain(text: str, words: list[str]) -> list[str]:
    """The meanings of words for long placeholders: "RUN: a run whose model has as many"."""
    typed = " ".join(words)
    return [
        f"{name}: {found[0].strip('<>')}"
        for found in _PLACEHOLDER.finditer(text)
        if _is_long(found["name"] or "") and (name := _name(found["name"])) in typed
    ]


def _is_long(placeholder: str) -> bool:
    """Whether a placeholder has more words than its word in capitals should have."""
    return len(re.findall(r"\w+", placeholder)) > _LONG


def _unquote(word: str) -> str:
    """The word that a shell makes of it; "" where it reads none."""
    try:
        return " ".join(shlex.split(word))
    except ValueError:
        return ""
