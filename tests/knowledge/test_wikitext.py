"""Wikitext by hand-made cases, each with what a reader of the wiki sees, and against
mwparserfromhell on real articles.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from plmctl.knowledge.dump import Dump
from plmctl.knowledge.wikitext import Wiki, remove_braces

SHARED = Path(__file__).parents[3] / "shared/data/wiki_links/enwiki-pages-articles-106.xml.bz2"
WIKI = Wiki({"": 0, "Wikipedia": 4, "Datei": 6, "Kategorie": 14}, without=["References"])


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("'''Bold''' and ''italic'' and '''''both'''''.", "Bold and italic and both."),
        ("One.<ref>A source, {{cite|x}}.</ref> Two.<ref name=a /> Three.", "One. Two. Three."),
        ("a <!-- {{ [[ hidden --> b", "a b"),
        ("a <!-- never closed", "a"),
        ("<nowiki>[[no link]] {{no template}} ''x''</nowiki>", "[[no link]] {{no template}} ''x''"),
        ("x {{a|b={{c|{{d}}}}|e}} y", "x y"),
        ("x {{{name|{{{other}}}}}} y", "x y"),
        ("x {{open y", "x open y"),
        ("x }} y", "x y"),
        ("{| class=wikitable\n|-\n| a || {{b}}\n{| \n| inner\n|}\n|}\nAfter.", "After."),
        ("{{box|\n{| \n| never closed\n}}\nAfter.", "After."),
        ("Text {{lang|fr|mot}}, {{convert|5|km|mi}}, {{nowrap|a b}}.", "Text mot, 5 km, a b."),
        ("1775{{ndash}}1783", "1775–1783"),
        ("A &amp; B&nbsp;C &lt;x&gt; &eacute;", "A & B C <x> é"),
        ("See [http://x.org the site] and [http://x.org].", "See the site and."),
        ("Paris ({{IPA|x}}; {{lang}}) is", "Paris is"),
        ("Paris ({{IPA|x}}; a city) is", "Paris (a city) is"),
        ("__TOC__\n* one\n** two\n# three\n: four", "one\ntwo\nthree\nfour"),
        ("a<br />b<span class=x>c</span>", "a\nbc"),
        ("<math>x^2</math>y<gallery>\nFile:a.jpg|b\n</gallery>", "y"),
        ("Intro.\n== History ==\nOld.\n=== Early ===\nOlder.", "Intro.\nOld.\nOlder."),
        ("A.\n== References ==\nx\n=== Notes ===\ny\n== More ==\nB.", "A.\nB."),
        ("----\nText", "Text"),
        ("中文[[维基]]文本。", "中文维基文本。"),
    ],
)
def test_what_a_reader_sees(text: str, seen: str) -> None:
    assert WIKI.read(text).text == seen


@pytest.mark.parametrize(
    ("text", "seen", "links"),
    [
        ("[[paris]]", "paris", [("paris", "Paris")]),
        ("[[Paris|the city]].", "the city.", [("the city", "Paris")]),
        ("[[dog]]s bark", "dogs bark", [("dogs", "Dog")]),
        ("[[dog|hound]]s", "hounds", [("hounds", "Dog")]),
        ("[[Paris#History|its past]]", "its past", [("its past", "Paris")]),
        ("[[#History|below]]", "below", []),
        ("[[Rome_(film)]]", "Rome_(film)", [("Rome_(film)", "Rome (film)")]),
        ("[[Rome (film)|]]", "Rome", [("Rome", "Rome (film)")]),
        ("[[Caf%C3%A9]]", "Caf%C3%A9", [("Caf%C3%A9", "Café")]),
        ("[[A&amp;B]]", "A&B", [("A&B", "A&B")]),
        ("[[ Paris | ''la ville'' ]]!", "la ville!", [("la ville", "Paris")]),
        ("[[File:a.jpg|thumb|A [[dog]] in [[Rome]]]]B", "B", []),
        ("[[Datei:a.jpg|x]] [[Image:b.png]]", "", []),
        ("[[Category:Dogs]][[de:Hund]][[zh-min-nan:X]]T", "T", []),
        ("[[:Category:Dogs]]", "Category:Dogs", []),
        ("[[Wikipedia:Help|help]]", "help", []),
        ("[[wikt:foo|foo]]", "foo", []),
        ("[[Alien: Covenant]]", "Alien: Covenant", [("Alien: Covenant", "Alien: Covenant")]),
        ("[[a", "a", []),
        ("a]] b", "a]] b", []),
        ("[[x [[Rome]] y]]", "x Rome y", [("Rome", "Rome")]),
        ("{{box|[[Rome]]}}[[Oslo]]", "Oslo", [("Oslo", "Oslo")]),
        ("([[Rome]] {{x}})  and [[Oslo]] .", "(Rome) and Oslo.", [("Rome",) * 2, ("Oslo",) * 2]),
        ("== See [[Rome]] ==\n[[Oslo]]", "Oslo", [("Oslo", "Oslo")]),
        ("== References ==\n[[Rome]]\n== X ==\n[[Oslo]]", "Oslo", [("Oslo", "Oslo")]),
    ],
)
def test_links(text: str, seen: str, links: list[tuple[str, str]]) -> None:
    article = WIKI.read(text)
    assert article.text == seen
    assert [(article.text[start:end], title) for start, end, title in article.links] == links


def test_categories_and_infoboxes_are_kept_apart() -> None:
    boxes = "{{Infobox military conflict\n|x=1}}{{Taxobox|}}{{Chem|H2}}"
    article = WIKI.read(f"{boxes}[[Kategorie:A|b]]")
    assert (article.categories, article.boxes) == (["A"], ["military conflict", "taxobox"])


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("#REDIRECT [[paris#Old|x]]", "Paris"),
        ("#redirect: [[A_b]] {{R from x}}", "A b"),
        ("#WEITERLEITUNG [[X]]", "X"),
        ("#重定向 [[北京]]", "北京"),
        ("Text #REDIRECT [[X]]", ""),
        ("# a list [[X]]", ""),
    ],
)
def test_redirects(text: str, target: str) -> None:
    assert WIKI.redirect(text) == target


def test_case_of_titles_is_that_of_the_wiki() -> None:
    assert Wiki({}, first_letter=False).title("dog_food#x") == "dog food"


def test_deep_nesting_and_private_characters_do_no_harm() -> None:
    assert remove_braces("{{" * 5000 + "a" + "}}" * 5000 + "b") == "b"
    assert WIKI.read("[[" * 5000 + "a" + "]]" * 5000).text == "a"
    article = WIKI.read("\ue0009\ue001 [[Rome]] \ue002")
    assert [(article.text[s:e], title) for s, e, title in article.links] == [("Rome", "Rome")]


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason="no ../shared")
def test_words_and_links_are_those_of_mwparserfromhell() -> None:
    parser = pytest.importorskip("mwparserfromhell")
    wiki = Wiki({"Wikipedia": 4, "Portal": 100, "Help": 12, "Template": 10})
    same = total = 0
    texts = [page.text for page in Dump(SHARED) if 5000 < len(page.text) < 40000][:8]
    for text in texts:
        article = wiki.read(text)
        code = parser.parse(text)
        for node in code.filter_wikilinks():
            if str(node.title).startswith(("File:", "Image:", "Category:")):
                code.remove(node)
        theirs = Counter(re.findall(r"\w+", code.strip_code()))
        ours = Counter(re.findall(r"\w+", article.text))
        same += (theirs & ours).total()
        total += max(theirs.total(), ours.total())
        titles = {wiki.title(str(node.title)) for node in parser.parse(text).filter_wikilinks()}
        assert {link.title for link in article.links} <= titles
    assert same / total > 0.93
