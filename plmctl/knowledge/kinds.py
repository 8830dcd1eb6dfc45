"""The kinds of things that pages of an encyclopedia are about, and the pages about no thing."""

from __future__ import annotations

import re
from collections.abc import Sequence

from plmctl.knowledge.wikitext import Article

_PREPOSITION = re.compile(
    r"\s(?:of|in|from|by|at|for|with|to|on|between|about|under|during|who|that|and|or|as)\s|[,(:/]"
)
_SINGULAR = ("ss", "ics", "us", "is")
_ENDINGS = re.compile(r"[a-z]{2,}s$")
# plurals without an s that name kinds
_PLURALS = frozenset({"people", "men", "women", "children", "alumni", "fungi", "deities", "fish"})
# heads of categories that group pages by something else than their subject
_NO_KINDS = frozenset({"births", "deaths", "establishments", "disestablishments", "introductions"})
_NO_KINDS |= {"articles", "pages", "stubs", "redirects", "errors", "links", "images", "sources"}
_NO_KINDS |= {"topics", "subjects", "descents", "news", "requests"}
_UPKEEP = re.compile(
    r"^(?:all |cs1|webarchive|use |wikipedia|good |featured |pages |articles |short description"
    r"|commons|coordinates|harv|template|wikidata|vague|engvar)|wikidata|articles with",
    re.IGNORECASE,
)
_QUALIFIER = re.compile(r"\(([a-z][a-z -]+)\)$")
_CHOICES = re.compile(r"\(disambiguation\)$|（消歧[义義]）$", re.IGNORECASE)
_CHOICE_BOX = re.compile(
    r"\{\{\s*(?:disambig\w*|disamb|dab|hndis|geodis|numberdis|surname|given name|消歧[义義]\w*)"
    r"\s*[|}]",
    re.IGNORECASE,
)
_LIST = re.compile(
    r"^(?:Lists? of |Index of |Outline of |Timeline of |Glossary of |Comparison of )|列表$|年表$"
)


def find_types(title: str, article: Article, sources: Sequence[str]) -> list[str]:
    """The types of the thing that a page is about.

    Args:
        article: The content of the page.
        sources: The sources of types, in this order. `heads` is the noun that a category is about,
            such as capitals in "Capitals in Europe" (Suchanek et al., 2007, sec. 3.2); categories:
            the categories themselves; infobox; qualifier: such as planet in "Mercury (planet)".
    """
    found: dict[str, None] = {}
    for source in sources:
        if source == "infobox":
            found |= dict.fromkeys(article.boxes)
        elif source == "qualifier":
            named = _QUALIFIER.search(title)
            found |= {named[1]: None} if named else {}
        else:
            names = (name for name in article.categories if not _UPKEEP.search(name))
            heads = names if source == "categories" else filter(None, map(find_head, names))
            found |= dict.fromkeys(heads)
    return list(found)


def find_head(category: str) -> str:
    """The plural noun that an English category is about, "" without one.

    American football players -> players; 1950s conflicts -> conflicts; Anarchism -> "".
    """
    words = _PREPOSITION.split(category, maxsplit=1)[0].split()
    head = words[-1].lower() if words else ""  # Philosophers, French Republicans
    plural = head in _PLURALS or (_ENDINGS.search(head) and not head.endswith(_SINGULAR))
    return head if plural and head not in _NO_KINDS else ""


def is_choice(title: str, text: str) -> bool:
    """Whether a page only tells apart what its title may mean (a disambiguation page)."""
    return bool(_CHOICES.search(title) or _CHOICE_BOX.search(text, max(0, len(text) - 4000)))


def is_list(title: str) -> bool:
    """Whether a page is a list of others."""
    return bool(_LIST.search(title))


def strip_qualifier(title: str) -> str:
    """A title as texts write it: "Mercury (planet)" without what tells it apart from others."""
    short = re.sub(r"\s*[（(][^()（）]*[)）]$", "", title)
    return short or title
