"""Gopher's rules of quality."""

from __future__ import annotations

from collections.abc import Iterator

from plmctl.cleaning.function_words import FUNCTION_WORDS
from plmctl.cleaning.rule import Drop, TextRule, find_beyond
from plmctl.cleaning.text_view import ELLIPSES, TextView
from plmctl.core.parts import part_of
from plmctl.core.values import Number, Rate, Whole

ENGLISH = frozenset(["the", "be", "to", "of", "and", "that", "have", "with"])  # the paper's own
CHINESE = frozenset("的了和是在有不我他这這就也与與为為都而之以及一于於")
JAPANESE = frozenset("のにはをたがでてとしれさあいもなか")
BULLETS = ("•", "-", "*", "‣", "·", "●")
SIGNS = "\"'“”‘’.,;:!?()[]{}«»…"


@part_of("rule")
class GopherQuality(TextRule):
    """Gopher's rules of quality (Rae et al., 2021, arXiv:2112.11446, sec. A.1.1).

    In scripts without spaces a character is a word, so that the mean length is not looked at. The
    stop words are those of the language; a language without a list needs none.

    Differs: its bounds on the number of words are the rule `length`.

    Args:
        mean_least, mean_most: Bounds on the mean length of words.
        symbols: The most signs # and ellipses, each for a word.
        bullets: The largest share of lines that begin with a bullet.
        ellipses: The largest share of lines that end with an ellipsis.
        letters: The least share of words with a letter.
        least_stop_words: The least number of different stop words.
    """

    def __init__(
        self,
        *,
        mean_least: Number | None = 3,
        mean_most: Number | None = 10,
        symbols: Number | None = 0.1,
        bullets: Rate | None = 0.9,
        ellipses: Rate | None = 0.3,
        letters: Rate | None = 0.8,
        least_stop_words: Whole | None = 2,
    ) -> None:
        self.mean_least, self.mean_most, self.symbols = mean_least, mean_most, symbols
        self.bullets, self.ellipses, self.letters = bullets, ellipses, letters
        self.least_stop_words = least_stop_words

    def apply(self, view: TextView) -> TextView | Drop:
        if not view.words:
            return Drop("no words")
        return next(filter(None, self._look(view)), None) or view

    def _look(self, view: TextView) -> Iterator[Drop | None]:
        words, lines, text = view.words, view.lines, view.text
        if view.has_spaces:
            mean = sum(map(len, words)) / len(words)
            yield find_beyond("short words", mean, least=self.mean_least)
            yield find_beyond("long words", mean, most=self.mean_most)
        yield find_beyond("hash signs", text.count("#") / len(words), most=self.symbols)
        dots = sum(map(text.count, ELLIPSES)) / len(words)
        yield find_beyond("ellipses", dots, most=self.symbols)
        bullets = sum(line.startswith(BULLETS) for line in lines) / len(lines)
        yield find_beyond("bullets", bullets, most=self.bullets)
        ends = sum(line.endswith(ELLIPSES) for line in lines) / len(lines)
        yield find_beyond("lines that end with an ellipsis", ends, most=self.ellipses)
        letters = sum(word.isalpha() or any(map(str.isalpha, word)) for word in words) / len(words)
        yield find_beyond("words without letters", letters, least=self.letters)
        if (stop := find_stop_words(view)) and self.least_stop_words is not None:
            seen = len(stop & {word.strip(SIGNS).lower() for word in words})
            yield find_beyond("few stop words", seen, least=self.least_stop_words)


def find_stop_words(view: TextView) -> frozenset[str]:
    """The stop words of the language of a text; of English, if no language is certain in it."""
    code = view.language.code
    own = {"en": ENGLISH, "und": ENGLISH, "zh": CHINESE, "ja": JAPANESE}
    return own[code] if code in own else frozenset(FUNCTION_WORDS.get(code, "").split())
