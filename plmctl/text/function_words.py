"""English words that carry grammar rather than meaning, by class (Huddleston and Pullum, 2002):
augmentation keeps them.
"""

from __future__ import annotations

from pathlib import Path

from plmctl.text.inputs import need_lines

ARTICLES = "a an the"
PRONOUNS = (
    "i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his"
    " himself she her hers herself it its itself they them their theirs themselves one oneself this"
    " that these those who whom whose which what"
)
QUANTIFIERS = (
    "all any both each every either neither few less least more most much many several some such no"
    " none other same"
)
PREPOSITIONS = (
    "about above across after against along among around as at before behind below beneath beside"
    " between beyond by despite down during except for from in inside into like near of off on onto"
    " out outside over past per since than through throughout till to toward towards under until up"
    " upon via with within without"
)
CONJUNCTIONS = (
    "and but or nor so yet if because although though while whereas whether unless once when where"
    " why how"
)
AUXILIARIES = (
    "am is are was were be been being have has had having do does did doing done can could may"
    " might must shall should will would ought cannot"
)
ADVERBS = "not never only just too very also then there here now again even still ever else own"

ENGLISH = frozenset(
    " ".join(
        [ARTICLES, PRONOUNS, QUANTIFIERS, PREPOSITIONS, CONJUNCTIONS, AUXILIARIES, ADVERBS]
    ).split()
)


def read_words(file: Path) -> frozenset[str]:
    """The words of a file, one a line, in lower case."""
    return frozenset(line.strip().lower() for _, line in need_lines(file) if line.strip())
