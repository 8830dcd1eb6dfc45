"""Rules for documents against their definitions."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from plmctl.cleaning.function_words import FUNCTION_WORDS
from plmctl.cleaning.languages import LANGUAGES, guess_language
from plmctl.cleaning.rule import Drop, TextRule
from plmctl.cleaning.rules.blocked import BlockedNgrams, locate_words
from plmctl.cleaning.rules.c4 import C4Quality
from plmctl.cleaning.rules.fineweb import FineWebQuality
from plmctl.cleaning.rules.gopher import GopherQuality
from plmctl.cleaning.rules.html import HtmlText
from plmctl.cleaning.rules.language import KeepLanguages
from plmctl.cleaning.rules.length import DocumentLength
from plmctl.cleaning.rules.pii import MaskedPii
from plmctl.cleaning.rules.repetition import (
    Repetition,
    bound_repeated,
    count_characters,
    count_repeated,
    find_top,
    number_words,
)
from plmctl.cleaning.text_view import TextView
from plmctl.cleaning.word_hashes import find_simple_words
from plmctl.core.errors import ConfigError
from plmctl.text.corpus import load_documents

PROSE = (
    "The keeper of the light walked to the end of the pier and looked at the sea with his glass."
    " A ship that nobody had seen before lay between the rocks. It had no flag."
    " He went back to the house and told his daughter that they would have guests tonight."
    " She put more bread into the oven, and the dog began to bark at the door."
)
CHINESE = (
    "这座城市的历史很长,在一千年以前就有人在这里居住。河边的房子是木头做的,也有用石头做的。"
    "每年春天,人们都到山上去看花,然后在家里吃饭。他们说这是他们最喜欢的日子。"
)


def why(rule: TextRule, text: str) -> str:
    """The reason for which a rule drops a text; "" if it stays."""
    found = rule.apply(TextView(text))
    return found.reason if isinstance(found, Drop) else ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("word " * 49, "few words"),
        ("word " * 50, ""),
        ("字" * 60, ""),
        ("word " * 101, "many words"),
    ],
)
def test_length_counts_words(text: str, reason: str) -> None:
    assert why(DocumentLength(least=50, most=100), text) == reason
    assert why(DocumentLength(least=None, most=None), text) == ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PROSE, ""),
        (CHINESE, ""),
        ("a b c d of the ", "short words"),
        ("internationalization of the antidisestablishmentarianism", "long words"),
        (PROSE + " #" * 12, "hash signs"),
        (PROSE.replace(" ", "... ", 10), "ellipses"),
        ("\n".join(f"- {line}" for line in PROSE.split(". ")), "bullets"),
        ("\n".join([*(f"{line} and more…" for line in PROSE.split(". ")[:4])]), "ellipses"),
        (PROSE + " 123" * 30, "words without letters"),
        ("Bread oven door dog house pier ship rocks flag glass", "few stop words"),
        ("北京上海广州深圳", "few stop words"),
        ("", "no words"),
    ],
)
def test_gopher_looks_at_words_lines_and_signs(text: str, reason: str) -> None:
    assert why(GopherQuality(symbols=0.05), text) == reason


def test_every_threshold_of_gopher_can_be_left_out() -> None:
    names = (
        "mean_least",
        "mean_most",
        "symbols",
        "bullets",
        "ellipses",
        "letters",
        "least_stop_words",
    )
    assert why(GopherQuality(**dict.fromkeys(names)), "# # 1 2 … ...") == ""


def slow_repeated(words: list[str], n: int) -> int:
    """The characters of later occurrences, each occurrence behind the one before it."""
    seen, total, at = [], 0, 0
    while at + n <= len(words):
        ngram = words[at : at + n]
        if ngram in seen:
            total += sum(len(word) for word in ngram)
            at += n
        else:
            seen.append(ngram)
            at += 1
    return total


def test_repeated_ngrams_are_those_of_slow_loops() -> None:
    draws = random.Random(0)
    for _ in range(60):
        words = draws.choices(["a", "bb", "ccc", "dd"], k=draws.randint(0, 40))
        numbers, lengths = number_words(words)
        for n in (2, 3, 5):
            assert count_characters(words, n) == slow_repeated(words, n)
            assert bound_repeated(numbers, lengths, n) >= count_characters(words, n)
            ngrams = Counter(" ".join(words[i : i + n]) for i in range(len(words) - n + 1))
            text, count = next(iter(ngrams.most_common(1)), ("", 0))
            assert find_top(words, numbers, n) == (len(text) * count if count > 1 else 0)
        pieces = draws.choices(["x", "yy"], k=draws.randint(1, 5))
        again = [piece for place, piece in enumerate(pieces) if piece in pieces[:place]]
        assert count_repeated(pieces) == (len(again), sum(map(len, again)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PROSE, ""),
        ("\n".join([*PROSE.split(". "), "x", "x", "x", "x", "x"]), "repeated lines"),
        ("\n\n".join([*PROSE.split(". "), "x", "x", "x", "x", "x"]), "repeated paragraphs"),
        ("\n".join([*PROSE.split(". "), PROSE[:150], PROSE[:150]]), "characters of repeated lines"),
        (" ".join(["very nice"] * 5 + [PROSE[:60]]), "most frequent 2-gram"),
        (f"{PROSE} and {PROSE[:120]}", "repeated 5-grams"),
        (CHINESE, ""),
        (CHINESE * 3, "repeated 5-grams"),
    ],
)
def test_repetition_has_gophers_thresholds(text: str, reason: str) -> None:
    assert why(Repetition(), text) == reason


def test_c4_leaves_lines_out_and_drops_pages() -> None:
    lines = PROSE.split(". ")
    good = "\n".join(f"{line.rstrip('.')}." for line in lines)
    rule = C4Quality()
    bad = ["Home | About us", "Two words.", "Wait...", "Please enable JavaScript to go on."]
    bad += ["Read our privacy policy first.", "a" * 1001 + " is too long."]
    changed = rule.apply(TextView("\n".join([bad[0], *good.split("\n"), *bad[1:]])))
    assert isinstance(changed, TextView)
    assert changed.text == good
    view = TextView(good)
    assert rule.apply(view) is view
    assert why(rule, good + "\n{ x }") == "a brace"
    assert why(rule, good + "\nLorem ipsum dolor.") == "lorem ipsum"
    assert why(rule, "One line of text.\nAnother line of text.") == "few sentences"
    assert why(C4Quality(sentences=3), CHINESE.replace("。", "。\n")) == ""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "\n".join([PROSE] + [f"{PROSE[:40]} {n}" for n in range(9)]),
            "lines without a final sign",
        ),
        ("\n".join([PROSE] + [f"Item {n}." for n in range(9)]), "short lines"),
        (f"{PROSE}\n{PROSE}", "characters of repeated lines"),
        (
            "A line that is long enough for it.\n\n\n" * 1 + "\n\n\n" + PROSE[:30] + ".",
            "line breaks",
        ),
        (PROSE, ""),
        (CHINESE, ""),
        (" \n ", "no lines"),
    ],
)
def test_fineweb_drops_lists(text: str, reason: str) -> None:
    assert why(FineWebQuality(), text) == reason


SENTENCES = {
    "en": "The boats came back before the storm had reached the coast of the island.",
    "de": "Die Boote kamen zurück, bevor der Sturm die Küste der Insel erreicht hatte.",
    "fr": "Les bateaux sont revenus avant que la tempête ne touche la côte de l'île.",
    "es": "Los barcos volvieron antes de que la tormenta llegara a la costa de la isla.",
    "it": "Le barche sono tornate prima che la tempesta arrivasse sulla costa della isola.",
    "pt": "Os barcos voltaram antes que a tempestade chegasse à costa da ilha, e não é tarde.",
    "nl": "De boten kwamen terug voordat de storm de kust van het eiland had bereikt.",
    "pl": "Łodzie wróciły, zanim burza dotarła do wybrzeża wyspy, ale nie było to dla nich łatwe.",
    "tr": "Gemiler bir gün sonra geri döndü ve bu ada için çok iyi oldu ama ne yazık.",
    "ru": "Лодки вернулись до того, как буря достигла берега острова.",
    "uk": "Човни повернулися до того, як буря досягла берега, і все було добре її людям.",
    "zh": "船在暴风雨到达海岸之前回来了。",
    "ja": "船は嵐が島の海岸に着く前に戻ってきた。",
    "ko": "폭풍이 섬의 해안에 닿기 전에 배들이 돌아왔다.",
    "ar": "عادت القوارب قبل أن تصل العاصفة إلى الساحل",
    "el": "Τα πλοία γύρισαν πριν φτάσει η καταιγίδα.",
}


@pytest.mark.parametrize("code", SENTENCES)
def test_languages_are_known_by_letters_and_function_words(code: str) -> None:
    guessed = guess_language(SENTENCES[code])
    assert guessed.code == code
    assert guessed.share > 0.65
    assert why(KeepLanguages(keep=[code]), SENTENCES[code]) == ""
    other = "de" if code == "en" else "en"
    assert why(KeepLanguages(keep=[other]), SENTENCES[code]) == f"language {code}"


def test_no_language_in_code_and_numbers() -> None:
    assert guess_language("foo = bar(baz); qux += 1").code == "und"
    assert guess_language("12 + 34").code == "und"
    assert set(FUNCTION_WORDS) < set(LANGUAGES)
    with pytest.raises(ConfigError, match=r"did you mean 'en'"):
        KeepLanguages(keep=["eng"])


def test_english_documents_are_english_and_good() -> None:
    """Nearly all of Python's own documentation is English."""
    texts = ["\n".join(document.paragraphs) for document in load_documents()]
    long = [text for text in texts if len(text) > 500][:150]
    assert sum(guess_language(text).code == "en" for text in long) > 0.97 * len(long)


ITEM = "Which of the two rivers that meet below the old bridge is the longer one in summer"


def test_blocked_ngrams_are_cut_with_their_margins() -> None:
    rule = BlockedNgrams(evaluation=[ITEM], margin=20, least=30)
    before, after = PROSE[:200], PROSE[-200:]
    text = f"{before} {ITEM.upper().replace(' ', ', ', 3)}? {after}"
    changed = rule.apply(TextView(text))
    assert isinstance(changed, TextView)
    first, last = changed.text.split("\n\n")
    start = text.index("WHICH") - 20
    assert first == text[:start].strip()
    assert last == text[text.index("SUMMER") + len("SUMMER?") + 20 :].strip()
    twelve = " ".join(ITEM.split()[:12])
    view = TextView(f"{before} {twelve}. {after}")
    assert rule.apply(view) is view


def test_short_items_are_found_by_8_grams_or_whole() -> None:
    short = " ".join(ITEM.split()[:9])
    rule = BlockedNgrams(evaluation=[short, "Yes, of course"], margin=0, least=1)
    changed = rule.apply(TextView(f"{PROSE} {short}. {PROSE}"))
    assert isinstance(changed, TextView)
    assert short not in changed.text
    assert why(rule, "yes, of course!") == "an item of an evaluation set"
    view = TextView(f"{PROSE} Yes, of course. ")
    assert rule.apply(view) is view


def test_a_document_in_many_pieces_or_in_none_is_dropped() -> None:
    rule = BlockedNgrams(evaluation=[ITEM], margin=0, least=10, pieces=3)
    assert why(rule, ITEM) == "nothing left around evaluation sets"
    assert why(rule, f" {PROSE[:90]} ".join([ITEM] * 5)) == "many pieces around evaluation sets"
    assert why(rule, f" {PROSE[:90]} ".join([ITEM] * 4)) == ""


def test_chinese_items_are_found_by_characters() -> None:
    rule = BlockedNgrams(evaluation=[CHINESE[30:60]], margin=0, least=5)
    changed = rule.apply(TextView(CHINESE))
    assert isinstance(changed, TextView)
    assert CHINESE[30:60] not in changed.text
    assert changed.text.replace("\n\n", "")[:25] == CHINESE[:25]


@pytest.mark.parametrize("text", [PROSE, CHINESE, "Don't, café-au-lait 3.5% x\n\n y", "ภาษาไทย ก็"])
def test_words_are_located(text: str) -> None:
    words, places = find_simple_words(text), locate_words(text)
    assert len(words) == len(places)
    for word, (start, end) in zip(words, places, strict=True):
        assert word in find_simple_words(text[start:end])


HTML = """<!DOCTYPE html><html><head><title>Ships &amp; sea</title><style>p {}</style></head><body>
<nav><a href="/">Home</a></nav><h1>Ships</h1><p>One <b>grey</b>
   ship.<p>Two<br>lines<ul><li>a<li>b</ul><table><tr><td>1<td>2</tr></table>
<script>if (1<b) x()</script><pre>  x\n    y</pre><ruby>漢<rt>かん</rt></ruby>字 &#8364;5</body>"""
HTML_TEXT = (
    "Ships & sea\n\nShips\n\nOne grey ship.\n\nTwo\nlines\n\na\nb\n\n1 2\n\nx\n    y\n\n漢字 €5"
)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (HTML, HTML_TEXT),
        ("a < b and c > d", "a < b and c > d"),
        ("List<String> x = new <T>();", "List<String> x = new <T>();"),
        ("AT&amp;T and R&D;", "AT&T and R&D;"),
        ("<s> one line </s>", "<s> one line </s>"),
        ("<div><nav>menu</div><p>text</p>", "text"),  # an element that nobody closed
        ("x<!-- note -->y", "xy"),
        ("<p>A<p/>B", "A\n\nB"),
        (f"<i>{'<b>' * 2000}{'</u>' * 2000}deep", "deep"),
    ],
)
def test_html_becomes_text(text: str, read: str) -> None:
    found = HtmlText().apply(TextView(text))
    assert isinstance(found, TextView)
    assert found.text == read
    plain = TextView(read.replace("&", "and"))
    assert HtmlText().apply(plain) is plain


def test_html_without_text_is_dropped_and_elements_are_chosen() -> None:
    assert why(HtmlText(), "<script>x</script>") == "no text in its HTML"
    view = HtmlText(skip=["B"]).apply(TextView("<nav>menu</nav><b>bold</b>"))
    assert isinstance(view, TextView)
    assert view.text == "menu"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Write to anna.berg+x@mail.example.co.uk.", "Write to <email>."),
        ("邮箱是abc@qq.com请联系", "邮箱是<email>请联系"),
        ("x@公司.cn吧，x@公司.中国，b@a.com和公司.cn", "<email>吧，<email>，<email>和公司.cn"),
        ("x@müller.de, (030) 1234567, (0221) 470-4700", "<email>, <phone>, <phone>"),
        ("(2019) 123456, f(0) 12345678, foo(030) 1234567",) * 2,
        ("photo@2x.png, @app.route, a@b", "photo@2x.png, @app.route, a@b"),
        ("+1 (212) 555-0123 or (212) 555-0123, 212.555.0123!", "<phone> or <phone>, <phone>!"),
        ("手机13812345678，座机010-62345678。", "手机<phone>，座机<phone>。"),
        ("+49 30 901820 or +8613812345678", "<phone> or <phone>"),
        (
            "电话（021）62751234，１３８１２３４５６７８，021－62751234",
            "电话<phone>，<phone>，<phone>",
        ),
        ("86-13812345678, 0086 13812345678, (+86)13812345678", "<phone>, <phone>, <phone>"),
        ("0086-10-62751234, 86-21-62751234", "<phone>, <phone>"),
        ("8613812345678, 1986-13812345678, 第１章（２０２４），１２３４５６７８９０１",) * 2,
        ("lisi＠qq.com，ｌｉｓｉ＠ｑｑ．ｃｏｍ。Ｂ", "<email>，<email>。Ｂ"),
        ("座机021－62751234", "座机<phone>"),
        ("身份证１１０１０５１９４９１２３１００２Ｘ", "身份证<resident_id>"),
        # examples of the IBAN registry of SWIFT; words in capitals behind a whole number stay
        ("DE89 3704 0044 0532 0130 00 BIC COBA", "<iban> BIC COBA"),
        ("BE68 5390 0754 7034 NOT GB82WEST12345698765432", "<iban> NOT <iban>"),
        ("BE69 5390 0754 7034", "BE69 5390 0754 7034"),
        ("4111 1111 1111 1111, 3782-822463-10005", "<card>, <card>"),
        ("4111 1111 1111 1112", "4111 1111 1111 1112"),
        ("身份证11010519491231002X号", "身份证<resident_id>号"),
        ("110105194912310021", "110105194912310021"),
        ("SSN 123-45-6789 not 000-45-6789", "SSN <ssn> not 000-45-6789"),
        ("1990-1995, 2024-11-28 13:30:00 +0000", "1990-1995, 2024-11-28 13:30:00 +0000"),
        ("pi 3.14159265, 10,000,000, ISBN 978-3-16-148410-0",) * 2,
        ("http://x.org/13812345678/a, 8.8.8.8",) * 2,
    ],
)
def test_personal_data_are_masked_where_they_are_certain(text: str, masked: str) -> None:
    view = TextView(text)
    found = MaskedPii().apply(view)
    assert found.text == masked
    assert (found is view) == (text == masked)


def test_kinds_and_the_mask_are_chosen() -> None:
    rule = MaskedPii(kinds=["ip"], mask="[{kind}]")
    text = "8.8.8.8, 10.0.0.1, 256.1.1.1, a@b.org"
    assert rule.apply(TextView(text)).text == "[ip], 10.0.0.1, 256.1.1.1, a@b.org"
