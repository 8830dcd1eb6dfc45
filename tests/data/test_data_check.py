"""Every verdict of the data check on small made data, and its counts against slow ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from string import ascii_letters
from typing import Any

import numpy as np
import pytest

from plmctl.core.errors import DataError
from plmctl.data.check import labels, overlap, text, tokens
from plmctl.data.check.characters import CharacterCounts
from plmctl.data.check.finding import Finding, LengthHistogram, Report, format_percent, shorten
from plmctl.data.check.hashes import Repeats, hash_stretches, hash_texts, mix_bits
from plmctl.data.check.labels import find_alike_labels
from plmctl.data.check.overlap import OverlapCounter
from plmctl.data.shards import Shards
from plmctl.data.survey import TextSource
from plmctl.data.tokenizing import TokenizingJob, tokenize
from plmctl.text.hanzi import find_form
from plmctl.text.segmented import count_words
from plmctl.text.train import KINDS

RNG = np.random.default_rng(0)
LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz"))
WORDS = np.array(["".join(RNG.choice(LETTERS, RNG.integers(2, 9))) for _ in range(2000)])
HAN = np.array([chr(point) for point in range(0x4E00, 0x4E00 + 3000)
                if find_form(chr(point)) != "traditional"][:1500])  # fmt: skip
NOTICE = "All rights are reserved by the company"


def sentence(rng: np.random.Generator) -> str:
    return " ".join(WORDS[rng.integers(0, len(WORDS), 12)]).capitalize() + "."


def chinese(rng: np.random.Generator) -> str:
    return "".join(HAN[rng.integers(0, len(HAN), 20)]) + "。"


def documents(count: int, seed: int, make: Any = sentence, lines: int = 3) -> list[str]:
    rng = np.random.default_rng(seed)
    return ["\n".join(make(rng) for _ in range(lines)) for _ in range(count)]


def write(file: Path, texts: list[str]) -> TextSource:
    file.write_text("\n\n".join(texts), encoding="utf-8")
    return TextSource(str(file), lines="paragraph")


# letters that no coverage keeps: those of ASCII always have tokens
WIDE = str.maketrans({letter: chr(ord(letter) + 0xFEE0) for letter in ascii_letters})


def of(report: Report) -> dict[str, Finding]:
    return {finding.name: finding for finding in report.findings}


def looked(tmp_path: Path, texts: list[str], valid: list[str] | None = None) -> dict[str, Finding]:
    held = write(tmp_path / "valid.txt", valid) if valid else None
    return of(text.check(write(tmp_path / "text.txt", texts), held))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("make", [sentence, chinese])
def test_clean_text_is_ok(tmp_path: Path, make: Any) -> None:
    found = looked(
        tmp_path,
        documents(3000, 0, make, lines=6 if make is sentence else 20),
        documents(50, 1, make),
    )
    assert {name: f.verdict for name, f in found.items() if f.verdict != "ok"} == {}
    script = "Latin" if make is sentence else "Han"
    assert found["scripts"].numbers["shares"] == {script: 1.0}
    assert found["size"].numbers["documents"] == 3000


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "spoil", "verdict"),
    [
        ("size", lambda texts: texts[:20], "bad"),
        ("size", lambda texts: texts[:1000], "look"),
        ("largest document", lambda texts: [*texts[:100], "\n".join(texts[100:200])], "look"),
        ("largest document", lambda texts: ["\n".join(texts), "end of it"], "bad"),
        (
            "lengths",
            lambda texts: [line for document in texts for line in document.split("\n")],
            "look",
        ),
        ("duplicate documents", lambda texts: [*texts, *texts[:20]], "look"),
        ("duplicate documents", lambda texts: [*texts, *texts[:200]], "bad"),
        (
            "near-duplicate documents",
            lambda texts: [*texts, *(t.upper() for t in texts[:20])],
            "look",
        ),
        (
            "near-duplicate documents",
            lambda texts: [*texts, *(t.replace(" ", "  ") for t in texts[:200])],
            "bad",
        ),
        (
            "duplicate lines",
            lambda texts: [f"{NOTICE} {n % 5}\n{t}" for n, t in enumerate(texts)],
            "look",
        ),
        (
            "duplicate lines",
            lambda texts: ["\n".join([texts[0], texts[n]]) for n in range(1, 999)],
            "bad",
        ),
        ("replacement characters", lambda texts: [*texts, "one \ufffd"], "look"),
        ("replacement characters", lambda texts: [t + "\ufffd" for t in texts], "bad"),
        ("wrongly decoded characters", lambda texts: [*texts, "cafÃ© donâ€™t"], "look"),
        ("wrongly decoded characters", lambda texts: [t + " MÃ¼ller" for t in texts], "bad"),
        ("wrongly decoded characters", lambda texts: [*texts, "锟斤拷锟斤拷"], "look"),
        (
            "wrongly decoded characters",
            lambda texts: [t + " " + "我是老用户".encode().decode("gbk", "ignore") for t in texts],
            "bad",
        ),
        ("control characters", lambda texts: [*texts, "form\x0c feed\x07"], "look"),
        ("control characters", lambda texts: [t + "\x00" for t in texts], "bad"),
        ("unknown words", lambda texts: [*texts, "the <unk> of"], "look"),
        ("unknown words", lambda texts: [t + " [UNK]" for t in texts], "bad"),
        (
            "scripts",
            lambda texts: [
                " ".join(str(hash(t + str(n)) % 10**6) for n in range(30)) for t in texts
            ],
            "bad",
        ),
        ("scripts", lambda texts: [re.sub(r"\w{4}", "1234", t) for t in texts], "look"),
    ],
)
def test_each_verdict_on_text(tmp_path: Path, name: str, spoil: Any, verdict: str) -> None:
    clean, spoilt = documents(1000, 0), looked(tmp_path, spoil(documents(1000, 0)))
    assert spoilt[name].verdict == verdict, spoilt[name]
    assert spoilt[name].advice
    if name not in ("size",):
        assert looked(tmp_path, clean)[name].verdict == "ok"


def test_shares_of_text_are_exact(tmp_path: Path) -> None:
    texts = documents(300, 3)
    found = looked(tmp_path, [*texts, *texts[:30], texts[5].upper()])
    assert found["duplicate documents"].numbers["share"] == pytest.approx(30 / 331)
    assert found["near-duplicate documents"].numbers["share"] == pytest.approx(31 / 331)
    assert found["duplicate lines"].numbers["share"] == pytest.approx(90 / 993)
    top, *_ = found["duplicate lines"].numbers["most frequent"].items()
    assert top[1] == 2
    both = looked(tmp_path, documents(40, 1, chinese) + documents(40, 1))
    counts = Counter("".join(documents(40, 1, chinese) + documents(40, 1)))
    letters = {
        s: sum(n for c, n in counts.items() if c.isalpha() and (c > "\u2e7f") == (s == "Han"))
        for s in ("Han", "Latin")
    }
    shares = both["scripts"].numbers["shares"]
    assert shares == pytest.approx({s: n / sum(letters.values()) for s, n in letters.items()})


def test_scripts_and_forms() -> None:
    made = CharacterCounts()
    made.add("aＡé ж α あ カ ｶ 한 ع א 〇 \u3400 1 ! \U00020000")
    assert set(made.scripts()) == {
        "Latin",
        "Cyrillic",
        "Greek",
        "Hiragana",
        "Katakana",
        "Hangul",
        "Arabic",
        "Hebrew",
        "Han",
    }
    assert made.scripts()["Latin"] == pytest.approx(3 / 13)


def test_what_validation_shares_with_train(tmp_path: Path) -> None:
    texts, own = documents(400, 0), documents(95, 9)
    found = looked(tmp_path, texts, [*own, *(t.upper() for t in texts[:5])])
    assert found["held-out documents in train"].numbers["share"] == pytest.approx(0.05)
    assert found["held-out documents in train"].verdict == "bad"
    assert (
        looked(tmp_path, texts, [*own, *own, *own, texts[0]])["held-out documents in train"].verdict
        == "look"
    )
    # no document is the same
    joined = [f"Something else.\n{a}\n{b}" for a, b in zip(own[:50], texts, strict=False)]
    found = looked(tmp_path, texts, joined)
    assert found["held-out documents in train"].verdict == "ok"
    assert found["held-out lines in train"].verdict == "bad"
    assert found["13-grams in train"].verdict == "bad"
    found = looked(
        tmp_path, texts, [*documents(15, 8, chinese), "".join(documents(1, 7, chinese)) + texts[0]]
    )
    assert found["13-grams in train"].verdict == "look"


def slow_runs(train: list[list[int]], held: list[list[int]]) -> tuple[float, float]:
    known = {tuple(units[i : i + 13]) for units in train for i in range(len(units) - 12)}
    marks = [[tuple(units[i : i + 13]) in known for i in range(len(units) - 12)] for units in held]
    all_of = [mark for document in marks for mark in document]
    return sum(all_of) / len(all_of), np.mean(
        [np.mean(document) >= 0.5 for document in marks if document]
    )


def test_runs_against_a_loop() -> None:
    rng = np.random.default_rng(5)
    train = [rng.integers(0, 50, rng.integers(1, 60)).tolist() for _ in range(60)]
    held = [[*rng.integers(0, 50, 10), *train[n][: rng.integers(5, 50)]] for n in range(25)] + [
        [1, 2, 3]
    ]
    runs = OverlapCounter()
    for part in (held[:10], held[10:]):
        runs.add_held_out(np.concatenate(part), np.cumsum([0, *map(len, part)]))
    for part in (train[:20], train[20:]):
        runs.add_training(np.concatenate(part), np.cumsum([0, *map(len, part)]))
    assert runs.shares() == pytest.approx(slow_runs(train, held))
    small = OverlapCounter(room=100)  # a part of the hash space stands for all
    small.add_held_out(np.concatenate(held), np.cumsum([0, *map(len, held)]))
    small.add_training(np.concatenate(train), np.cumsum([0, *map(len, train)]))
    assert len(small._runs) <= 100
    assert small.shares()[0] == pytest.approx(slow_runs(train, held)[0], abs=0.2)


def test_words_are_words_and_chinese_characters() -> None:
    units, edges = overlap.Words()(["The cat THE", "今天 ok好"])
    assert edges.tolist() == [0, 3, 7]
    assert units[0] == units[2] != units[1]
    again, _ = overlap.Words()(["好 天"])
    assert again.tolist() == [units[6], units[4]]


def test_words_of_chinese_are_counted_by_characters_or_by_a_segmenter(tmp_path: Path) -> None:
    assert count_words("The cat, - 3.5 m") == 5
    assert count_words("今天 ok好。天气3.5度，\nQ&A吗？") == 10

    def cut_pairs(sentence: str) -> Iterator[tuple[int, int]]:
        return ((at, at + 2) for at in range(0, len(sentence), 2))

    assert count_words("今天天气。。", cut_pairs) == 2
    (tmp_path / "zh.txt").write_text("今天天气很好。\n\n我们去公园。\n", encoding="utf-8")
    source = TextSource(str(tmp_path / "zh.txt"))
    said = of(text.check(source))["size"]
    assert said.numbers["words"] == 11
    assert "11 words (of Chinese, its characters)" in said.found
    said = of(text.check(source, segmenter=cut_pairs))["size"]
    assert f"{said.numbers['words']} words of the segmenter" in said.found
    assert said.numbers["words"] < 11


def test_labelled_chinese_is_counted_by_characters_and_lacks_are_told_apart() -> None:
    chinese = [Labelled({"text": "今天天气很好。"}, str(n % 2)) for n in range(300)]
    found = of(labels.check("x", {"train": chinese}))
    assert "half below 6 words or Chinese characters" in found["lengths"].found
    assert found["size"].advice == "None to validate on: scores vary by chance."
    held = of(labels.check("x", {"train": chinese}, held_share=0.1))["size"]
    assert (held.verdict, held.found) == ("ok", "train 300, of which plmctl finetune holds out 10%")
    few = of(labels.check("x", {"train": chinese[:9], "dev": chinese[:9]}))["size"].advice
    assert few == "Fewer than 200 examples to learn from: scores vary by chance."


def test_repeats_are_exact_and_then_estimated() -> None:
    rng = np.random.default_rng(2)
    values = rng.integers(0, 20_000, 50_000)
    exact, sampled = Repeats(), Repeats(room=1000)
    for part in np.split(mix_bits(values), 10):
        exact.add(part)
        sampled.add(part)
    assert exact.share == pytest.approx(1 - len(np.unique(values)) / len(values))
    assert exact.kept == 1
    assert exact.count(mix_bits(values[:1])[0]) == (values == values[0]).sum()
    assert len(sampled.hashes) <= 1000
    assert 1 / 40 < sampled.kept < 1 / 15
    assert sampled.share == pytest.approx(exact.share, abs=0.03)
    other = Repeats()
    other.add(mix_bits(np.arange(10_000)))
    assert exact.shared_with(other) == pytest.approx((values < 10_000).mean())
    assert sampled.shared_with(other) == pytest.approx((values < 10_000).mean(), abs=0.1)
    assert Repeats().share == 0


def test_stretches_depend_on_content_only() -> None:
    rng = np.random.default_rng(0)
    units = rng.integers(0, 3, 200)
    start = rng.integers(0, 190, 500)
    end = start + rng.integers(0, 10, 500)
    found = hash_stretches(units, start, end)
    names = [tuple(units[a:b].tolist()) for a, b in zip(start, end, strict=True)]
    assert len(set(names)) == len(set(found.tolist()))
    assert len({(name, hashed) for name, hashed in zip(names, found.tolist(), strict=True)}) == len(
        set(names)
    )
    assert len(set(hash_texts(["a", "b", "a"]).tolist())) == 2


def test_lengths() -> None:
    values = np.random.default_rng(0).lognormal(6, 1, 5000).astype(int) + 1
    made = LengthHistogram()
    for part in np.split(values, 5):
        made.add(part)
    assert (made.count, made.total, made.largest) == (5000, values.sum(), values.max())
    for share in (0.05, 0.5, 0.95):
        assert made.quantile(share) == pytest.approx(np.quantile(values, share), rel=0.06)
    edges, counts = made.bins()
    assert counts == [((values >= a) & (values < b)).sum() for a, b in pairwise(edges)]
    assert sum(counts) == 5000
    assert made.above(400) == pytest.approx((values > 400).mean(), abs=0.02)
    exact = LengthHistogram()
    exact.add([1, 2, 4, 8, 16, 1024])
    assert exact.bins()[1] == [1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1]


def test_percent() -> None:
    assert [format_percent(share) for share in (0, 1, 0.5, 0.1234, 0.0123, 0.00012)] == [
        "0%",
        "100%",
        "50%",
        "12%",
        "1.2%",
        "0.012%",
    ]


@dataclass
class Format:
    max_length: int = 32
    lost: int = 0

    def plan(self, shards: Shards, **_: Any) -> Any:
        rows = -(-len(shards.ids) // self.max_length)
        return type(
            "Plan",
            (),
            {"rows": rows, "width": self.max_length, "report": {"cut": self.lost, "padding": 7}},
        )()


def token_report(
    tmp_path: Path,
    texts: list[str],
    *,
    vocab_size: int = 600,
    kind: str = "wordpiece",
    lost: int = 0,
    **more: Any,
) -> dict[str, Finding]:
    from plmctl.text.tokenizer import Tokenizer

    job = TokenizingJob(
        write(tmp_path / "text.txt", texts),
        KINDS[kind](vocab_size=vocab_size, **more),
        valid_share=0.05,
        processes=1,
    )
    tokenize(job, tmp_path / "out")
    train, valid = (Shards.open(tmp_path / "out", split) for split in ("train", "valid"))
    return of(tokens.check(train, valid, Tokenizer.load(tmp_path / "out"), Format(lost=lost)))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("kind", "make"), [("wordpiece", sentence), ("byte_bpe", sentence), ("char", chinese)]
)
def test_clean_tokens_are_ok(tmp_path: Path, kind: str, make: Any) -> None:
    texts = documents(800, 0, make, lines=8)
    found = token_report(tmp_path, texts, kind=kind, vocab_size=1600 if kind == "char" else 600)
    assert {name for name, f in found.items() if f.verdict != "ok"} <= {
        "size",
        "size of a token",
        "unused vocabulary",
    }
    assert next(iter(found["scripts"].numbers["shares"])) == ("Han" if make is chinese else "Latin")
    assert found["held-out documents in train"].numbers["share"] == 0


def test_tokens_are_counted_as_the_slow_way_does(tmp_path: Path) -> None:
    texts = documents(300, 0)
    texts += texts[:20]  # copies share a hash, so they stay in one split
    found = token_report(tmp_path, texts)
    shards = Shards.open(tmp_path / "out")
    sentences = [tuple(shards.ids[a:b].tolist()) for a, b in pairwise(shards.sentences)]
    whole = [tuple(sentences[a:b]) for a, b in pairwise(shards.documents)]
    long = [one for one in sentences if len(one) >= tokens.LONG]
    assert found["duplicate documents"].numbers["share"] == pytest.approx(
        1 - len(set(whole)) / len(whole)
    )
    assert found["duplicate sentences"].numbers["share"] == pytest.approx(
        1 - len(set(long)) / len(long)
    )
    assert found["lengths"].numbers["largest"] == max(sum(map(len, one)) for one in whole)
    counts = Counter(shards.ids.tolist())
    valid = Shards.open(tmp_path / "out", "valid")
    share = np.array(list(Counter(valid.ids.tolist()).values())) / len(valid.ids)
    assert found["unigram entropy"].numbers["entropy"] == pytest.approx(
        -(share * np.log(share)).sum()
    )
    assert found["unused vocabulary"].numbers["share"] < 0.3
    assert found["size of a token"].numbers["tokens per word"] == pytest.approx(
        sum(counts.values()) / shards.counts["words"].sum()
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "verdict", "how"),
    [
        ("size", "bad", {"texts": documents(20, 0), "vocab_size": 400}),
        ("duplicate documents", "bad", {"texts": documents(100, 0) + documents(30, 0)}),
        (
            "duplicate sentences",
            "bad",
            {
                "texts": [
                    d.rpartition("\n")[0] + "\n" + documents(1, 5)[0] for d in documents(100, 0)
                ]
            },
        ),
        (
            "unknown tokens",
            "look",
            {
                "texts": [text.translate(WIDE) for text in documents(300, 0)],
                "character_coverage": 0.995,
                "kind": "char",
                "vocab_size": 90,
            },
        ),
        (
            "unknown tokens",
            "bad",
            {
                "texts": [text.translate(WIDE) for text in documents(300, 0)],
                "character_coverage": 0.9,
                "kind": "char",
                "vocab_size": 90,
            },
        ),
        ("size of a token", "bad", {"texts": documents(300, 0), "kind": "char", "vocab_size": 90}),
        ("rows", "look", {"texts": documents(100, 0), "lost": 700}),
        ("rows", "bad", {"texts": documents(100, 0), "lost": 5000}),
    ],
)
def test_each_verdict_on_tokens(
    tmp_path: Path, name: str, verdict: str, how: dict[str, Any]
) -> None:
    found = token_report(tmp_path, **how)
    assert found[name].verdict == verdict, found[name]
    assert found[name].advice


def test_damaged_tokens_are_no_finding_but_an_error(tmp_path: Path) -> None:
    token_report(tmp_path, documents(100, 0))
    data = bytearray((tmp_path / "out/train.ids.npy").read_bytes())
    data[-1] ^= 1
    (tmp_path / "out/train.ids.npy").write_bytes(data)
    train, valid = (Shards.open(tmp_path / "out", split) for split in ("train", "valid"))
    with pytest.raises(DataError, match=r"train\.ids\.npy: its content has changed"):
        tokens.check(train, valid, None, None)  # type: ignore[arg-type]


@dataclass
class Labelled:
    fields: dict[str, Any]
    label: Any
    place: str = "x.tsv:1"


def examples(count: int, seed: int = 0, classes: int = 2) -> list[Labelled]:
    rng = np.random.default_rng(seed)
    return [
        Labelled({"text": sentence(rng)}, str(n % classes), f"x.tsv:{n + 1}") for n in range(count)
    ]


SPOILT = {"misread": "caf\u00c3\u00a9", "replaced": "caf\ufffd"}


def spoilt(name: str) -> dict[str, list[Labelled]]:
    train, dev = examples(400), examples(100, 1)
    first = dict(train[0].fields)
    if name == "few":
        return {"train": train[:50], "dev": dev}
    if name == "no dev":
        return {"train": train}
    if name == "unbalanced":
        return {
            "train": [Labelled(e.fields, str(int(n < 15))) for n, e in enumerate(train)],
            "dev": dev,
        }
    if name == "rare":
        return {"train": [*train, Labelled({"text": "odd one"}, "2")], "dev": dev}
    if name == "unseen":
        return {"train": train, "dev": [*dev, Labelled({"text": "odd one"}, "yes")]}
    if name == "copies":
        return {
            "train": [
                *train,
                *(Labelled({"text": e.fields["text"].upper()}, e.label) for e in train[:8]),
            ],
            "dev": dev,
        }
    if name == "contradiction":
        return {"train": [*train, Labelled(first, "1", "x.tsv:777")], "dev": dev}
    if name in SPOILT:
        return {"train": [*train, Labelled({"text": SPOILT[name]}, "1")], "dev": dev}
    if name == "empty":
        return {"train": [*train, Labelled({"text": " "}, "1")], "dev": dev}
    if name == "leak":
        return {"train": train, "dev": [*dev, train[3], train[4]]}
    return {"train": train, "dev": [*dev * 3, train[3]]}


@pytest.mark.parametrize(
    ("name", "finding", "verdict"),
    [
        ("few", "size", "look"),
        ("no dev", "size", "look"),
        ("unbalanced", "labels", "look"),
        ("rare", "rare labels", "look"),
        ("unseen", "labels that train lacks", "bad"),
        ("copies", "duplicate examples", "look"),
        ("contradiction", "contradictory labels", "look"),
        ("empty", "empty texts", "look"),
        ("misread", "wrongly decoded characters", "look"),
        ("replaced", "replacement characters", "look"),
        ("leak", "dev in train", "bad"),
        ("small leak", "dev in train", "look"),
    ],
)
def test_each_verdict_on_labels(name: str, finding: str, verdict: str) -> None:
    assert {
        f.name: f.verdict
        for f in labels.check("x", {"train": examples(400), "dev": examples(100, 1)}).findings
        if f.verdict != "ok"
    } == {}
    found = of(labels.check("x", spoilt(name)))
    assert found[finding].verdict == verdict, found[finding]
    assert found[finding].advice
    if name == "contradiction":
        assert found[finding].numbers == {
            "count": 2,
            "texts": 1,
            "places": [["x.tsv:1", "x.tsv:777"]],
        }
        empty = [Labelled({"text": " "}, label, "x.tsv:9") for label in "01"]
        own = of(labels.check("x", {"train": [*empty, *spoilt(name)["train"]]}))[finding]
        assert own.found.endswith(": x.tsv:1 and x.tsv:777")  # no empty text is the example


@dataclass
class Case:
    rows: list[Labelled]
    said: str
    verdicts: dict[str, str] = field(default_factory=dict)


@pytest.mark.parametrize(
    "case",
    [
        Case(
            [Labelled({"text": f"t {n}", "text2": "b"}, str(n / 100)) for n in range(300)],
            "scores from 0 to 2.99, mean 1.50",
        ),
        Case(
            [Labelled({"words": ["In", f"P{n}"]}, ["O", "B-LOC"]) for n in range(300)],
            "2: O 50%, B-LOC 50%",
        ),
        Case(
            [
                Labelled(
                    {"question": f"q {n}", "context": "c", "answers": ["c"] * (n % 2)},
                    (0, 1) if n % 2 else None,
                )
                for n in range(300)
            ],
            "2: no answer 50%, answer 50%",
        ),
        Case(
            [Labelled({"text": f"今天第{n}个"}, "好" if n % 2 else "坏") for n in range(300)],
            "2: 坏 50%, 好 50%",
        ),
        Case(
            [Labelled({"text": f"t {n}"}, ("a", "b") if n % 3 else ("b",)) for n in range(300)],
            "2: b 60%, a 40%",
        ),
    ],
)
def test_other_kinds_of_labels(case: Case) -> None:
    found = of(labels.check("x", {"train": case.rows, "dev": case.rows[:1]}))
    assert found["labels"].found == case.said
    assert found["labels"].verdict == "ok"


def test_over_long_examples() -> None:
    train = examples(100)

    def measure(rows: Any) -> tuple[np.ndarray, np.ndarray]:
        size = np.arange(1, len(rows) + 1)
        return size, np.maximum(size - 90, 0)

    found = of(labels.check("x", {"train": train}, measure=measure))
    assert found["over-long examples"].verdict == "look"
    assert found["over-long examples"].numbers == {"share": 0.1, "lost": 55 / 5050, "longest": 100}
    assert "x.tsv:100" in found["over-long examples"].found
    with pytest.raises(DataError, match="no training split"):
        labels.check("x", {"dev": train})


def test_a_quote_can_be_printed() -> None:
    """JSON can spell half a surrogate pair, no terminal and no page can show it."""
    assert shorten("a  \ud800 \n b").encode() == "a \ufffd b".encode()


def test_a_rare_label_may_be_another_one() -> None:
    known = ["财务", "財務", "账号", "技术", "VIP", "ｖｉｐ ", "售后", "其他"]
    assert find_alike_labels(["財務", "ｖｉｐ ", "其他"], known) == {
        "財務": ["财务", "账号"],
        "ｖｉｐ ": ["VIP"],
    }


def test_labels_without_a_score_are_named() -> None:
    train, dev = examples(400, classes=4), examples(100, 1, classes=3)
    report = labels.check("x", {"train": train, "dev": dev, "test": train[:1]})
    found = of(report)["labels of train alone"]
    assert (found.verdict, found.found) == ("look", "dev: 3; test: 1, 2, 3")
    assert "labels of train alone" not in of(labels.check("x", {"train": train, "dev": train[:9]}))


def test_many_labels_are_listed_as_far_as_a_line_goes() -> None:
    train = [replace(each, label=f"l{n:02}") for n, each in enumerate(examples(30))]
    found = of(labels.check("x", {"train": train}))
    assert found["labels"].found.startswith("30: l00 3.3%, ")
    assert found["labels"].found.endswith("l19 3.3% and 10 more; --json lists all")
    assert found["rare labels"].found.endswith("l19 and 10 more")
