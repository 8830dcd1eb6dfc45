"""C4's rules."""

from __future__ import annotations

from plmctl.cleaning.rule import Drop, TextRule, find_beyond
from plmctl.cleaning.text_view import ELLIPSES, QUOTES, STOPS, TextView
from plmctl.core.parts import part_of
from plmctl.core.values import Count, Whole
from plmctl.text.letters import split_spaced
from plmctl.text.sentences import split

POLICIES = (
    "terms of use",
    "privacy policy",
    "cookie policy",
    "uses cookies",
    "use of cookies",
    "use cookies",
)


@part_of("rule")
class C4Quality(TextRule):
    """C4's rules: some lines are left out, and documents with too few sentences are dropped.

    Raffel et al., 2020, JMLR 21(140), sec. 2.2. Chinese lines end with 。！？, and their characters
    count as words.

    Differs: the list of bad words is not part of it. The paper wants 5 words in a line and 3
    sentences; the defaults are those of the published code and of FineWeb.

    Args:
        end_signs: Whether a line ends with a full stop or the like, and not with an ellipsis.
        words: The least number of words in a line.
        longest_word: The largest number of characters in a word of a line.
        scripts: Whether lines with "javascript" are left out.
        policies: Whether lines about cookies and terms of use are left out.
        lorem_ipsum: Whether documents with "lorem ipsum" are dropped.
        braces: Whether documents with { are dropped.
        sentences: The least number of sentences in the rest.
    """

    def __init__(
        self,
        *,
        end_signs: bool = True,
        words: Whole | None = 3,
        longest_word: Count | None = 1000,
        scripts: bool = True,
        policies: bool = True,
        lorem_ipsum: bool = True,
        braces: bool = True,
        sentences: Whole | None = 5,
    ) -> None:
        self.end_signs, self.words, self.longest_word = end_signs, words, longest_word
        self.unwanted = (*(("javascript",) if scripts else ()), *(POLICIES if policies else ()))
        self.lorem_ipsum, self.braces, self.sentences = lorem_ipsum, braces, sentences

    def apply(self, view: TextView) -> TextView | Drop:
        if self.braces and "{" in view.text:
            return Drop("a brace")
        if self.lorem_ipsum and "lorem ipsum" in view.text.lower():
            return Drop("lorem ipsum")
        lines = [line for line in view.lines if self._keeps(line)]
        if self.sentences is not None:
            count = sum(len(split(line)) for line in lines)
            if dropped := find_beyond("few sentences", count, least=self.sentences):
                return dropped
        if not lines:
            return Drop("no lines")
        return view if len(lines) == len(view.lines) else TextView("\n".join(lines))

    def _keeps(self, line: str) -> bool:
        ends = line.endswith((*STOPS, *QUOTES)) and not line.endswith(ELLIPSES)
        if self.end_signs and not ends:
            return False
        words = split_spaced(line)
        if self.words is not None and len(words) < self.words:
            return False
        if self.longest_word is not None and max(map(len, words)) > self.longest_word:
            return False
        lower = line.lower()
        return not any(unwanted in lower for unwanted in self.unwanted)
