"""Letters and words of many scripts: marks belong to their letters, in one Unicode form."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from tokenizers import normalizers
from typer.testing import CliRunner

from plmctl.attack.perturbations import NoPunctuation, Typos, slip
from plmctl.attack.slips import LetterSlips
from plmctl.attack.word_text import WordText
from plmctl.cli.app import make_app
from plmctl.data.check.overlap import Words
from plmctl.knowledge.dictionary import Dictionary
from plmctl.knowledge.words import find_words as find_plain_words
from plmctl.tasks.retrieval import split_units
from plmctl.tasks.scores import meteor, rouge, sentence_bleu, written
from plmctl.tasks.scores import trivia as matching
from plmctl.text import letters
from plmctl.text.injected import InjectedToken
from plmctl.text.letters import ChangedLetters, measure_changed
from plmctl.text.roles import Roles, find_joined, make_vocabulary
from plmctl.text.tokenizer import Tokenizer

# a text, and its words
SCRIPTS = {
    "hindi": ("क्षेत्र में हिन्दी है।", ["क्षेत्र", "में", "हिन्दी", "है"]),
    "vietnamese": ("Tiếng Việt, đất nước", ["Tiếng", "Việt", "đất", "nước"]),
    "hebrew": ("שָׁלוֹם עוֹלָם!", ["שָׁלוֹם", "עוֹלָם"]),
    "arabic": ("مُحَمَّدٌ كِتَابٌ", ["مُحَمَّدٌ", "كِتَابٌ"]),
    "persian": ("می‌خواهم بروم", ["می‌خواهم", "بروم"]),
    "russian": ("Ёлка и йод", ["Ёлка", "и", "йод"]),
    "korean": ("한국어 문장", ["한국어", "문장"]),
    "german": ("größere Wälder", ["größere", "Wälder"]),
    "bengali": ("বাংলা ভাষা", ["বাংলা", "ভাষা"]),
    "tamil": ("தமிழ் மொழி", ["தமிழ்", "மொழி"]),
    "english": ("don't_know, x2", ["don", "t_know", "x2"]),
}
UNSPACED = {
    "chinese": ("北京 大学", ["北", "京", "大", "学"]),
    "japanese": ("ガッコウへ", ["ガ", "ッ", "コ", "ウ", "へ"]),
    "thai": ("ที่นี่ดี", ["ที่", "นี่", "ดี"]),
    "khmer": ("ភាសាខ្មែរ", ["ភា", "សា", "ខ្", "មែ", "រ"]),
}
FORMS = ("NFC", "NFD")


def forms(text: str) -> list[str]:
    return [unicodedata.normalize(form, text) for form in FORMS]


def slow_words(text: str) -> list[str]:
    """Runs of letters, marks, digits and `_`, character by character."""
    words, run = [], ""
    for char in [*text, " "]:
        begins = unicodedata.category(char)[0] in "LN" or char == "_"
        mark = unicodedata.category(char)[0] == "M" or char in "\u200c\u200d"
        if begins or (mark and run):
            run += char
        elif run:
            words.append(run.rstrip("\u200c\u200d"))
            run = ""
    return [word for word in words if word]


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("form", FORMS)
def test_words(name: str, form: str) -> None:
    text, expected = SCRIPTS[name]
    text = unicodedata.normalize(form, text)
    found = [word[0] for word in letters.find_words(text)]
    assert found == [unicodedata.normalize(form, word) for word in expected] == slow_words(text)
    assert letters.split_words(text) == [
        part for word in expected for part in letters.compose(word).split("_")
    ]


def test_words_against_a_slow_loop() -> None:
    draws = np.random.default_rng(0)
    alphabet = [*"abz09_ .,-'’", *"éहि्न्दى\u0301\u0308\u200c\u200dกี北ーёى٣½²"]
    for _ in range(300):
        text = "".join(draws.choice(alphabet, size=30))
        assert [w[0] for w in letters.find_words(text)] == slow_words(text), text


@pytest.mark.parametrize("name", UNSPACED)
def test_scripts_without_spaces_are_counted_by_characters(name: str) -> None:
    text, expected = UNSPACED[name]
    for one in forms(text):
        assert letters.split_words(one) == [letters.compose(part) for part in expected]
        assert split_units(one) == [letters.compose(part) for part in expected]
    assert letters.has_unspaced(text)
    assert not any(letters.has_unspaced(other) for other, _ in SCRIPTS.values())


@pytest.mark.parametrize("text", [text for text, _ in [*SCRIPTS.values(), *UNSPACED.values()]])
def test_one_text_in_two_forms_is_one_text_to_every_metric(text: str) -> None:
    one, other = forms(f"{text} x {text}")
    for metric in (rouge.rouge_l, meteor.meteor, lambda a, b: sentence_bleu.bleu2([a], b)):
        assert metric(one, other) == pytest.approx(metric(one, one)) == pytest.approx(1, abs=0.02)
    assert rouge.rouge_n(one, other, n=2) == 1
    assert written.exact([one], other)
    assert written.distinct([one, other], n=1) == pytest.approx(written.distinct([one, one], n=1))
    units, edges = Words()([one, other])
    assert units[: edges[1]].tolist() == units[edges[1] :].tolist()
    assert split_units(one) == split_units(other)
    (start, end), *_ = matching.find_all([one.split()[0]], f"b {other}")
    assert letters.compose(f"b {other}"[start:end]) in letters.compose(one)


def test_a_part_of_a_word_is_no_match() -> None:
    assert matching.find_all(["हिन"], "में हिन्दी है") == []
    assert rouge.rouge_l("हिन्दी", "हिन्द") == 0
    assert rouge.rouge_l("ภาษาไทย", "ภาษา") == pytest.approx(2 * 4 / (4 + 7))
    assert sentence_bleu.bleu2(["東京へ行く"], "東京へ行こう") > 0.4


def test_names_are_found_in_both_forms() -> None:
    names = [("Đặng Thị", 3, 5), ("हिन्दी", 4, 5), ("Orlando", 5, 1)]
    dictionary = Dictionary([(unicodedata.normalize("NFD", n), e, c) for n, e, c in names])
    for text in forms("sie hieß Đặng Thị und sprach हिन्दी in Orlando"):
        found = [(letters.compose(text[m.start : m.end]), m.id) for m in dictionary.link(text)]
        assert found == [("Đặng Thị", 3), ("हिन्दी", 4), ("Orlando", 5)]
    assert dictionary.candidates(unicodedata.normalize("NFD", "Đặng Thị")) == [(3, 1.0)]


def script(letter: str) -> str:
    """The script of a letter, by the first word of its Unicode name."""
    return unicodedata.name(letter[0]).partition(" ")[0]


@pytest.mark.parametrize("name", [*SCRIPTS, *UNSPACED])
def test_slips_keep_marks_on_their_letters(name: str) -> None:
    text = unicodedata.normalize("NFD", (SCRIPTS | UNSPACED)[name][0])
    draws = np.random.default_rng(1)
    words = [words for words in WordText.of(text).pieces if any(map(str.isalpha, words))]
    for word in words:
        own = letters.split_letters(word.lower())
        for _ in range(20):
            changed = [slip(word, draws), *LetterSlips().slip(word, draws)]
            for other in changed:
                new = set(letters.split_letters(other.lower())) - set(own)
                scripts = {script(letter) for letter in own if letter[0].isalpha()}
                assert {script(letter) for letter in new} <= scripts | {"LATIN"}
                assert not any(letters.is_mark(letter[0]) for letter in new)
    assert Typos(rate=0.5)(text) != text
    assert WordText.of(text).text == text


def test_words_that_an_attack_replaces_are_whole() -> None:
    for text, expected in SCRIPTS.values():
        words = WordText.of(text)
        if "_" not in text:
            assert [words.word(n) for n in range(len(words))] == expected
    for text, expected in UNSPACED.values():
        words = WordText.of(text)
        assert [words.word(n) for n in range(len(words))] == expected
    assert NoPunctuation()("दी-हि, नी’ब") == "दी हि नीब"
    assert letters.is_word("हिन्दी")
    assert not letters.is_word("हिन्दी।")
    assert not letters.is_word("")


def test_marks_go_on_with_the_word_in_whole_word_masks() -> None:
    tokens = ["a", "\u0301", "ह", "ि", "्", "\u200d", "北", "ก", ".", "7"]
    assert find_joined(tokens).tolist() == [True] * 6 + [False, True, False, True]
    pieces = ["[PAD]", "▁при", "вет", "▁हि", "न्दी", "дом", "北京", "ガ", ".", "ing", "é", "。"]
    vocab = make_vocabulary(pieces, Roles(pad="[PAD]"), "unigram")
    starts = [piece for piece, start in zip(pieces, vocab.word_start, strict=True) if start]
    assert starts == ["[PAD]", "▁при", "▁हि", "北京", "ガ", ".", "。"]


def test_new_tokens_have_their_marks(tmp_path: Path) -> None:
    sentences = ["हिन्दी हिन्दी में", "एक क्षेत्र"] * 40
    tokenizer = Tokenizer.train(sentences, kind="bpe", vocab_size=28)
    grown, _ = tokenizer.extend(sentences, tokens=12, least=2)
    assert "▁हिन्दी" in grown.pieces(range(grown.vocab.size))
    named = tokenizer.inject([InjectedToken("हिन्दी", "<w>", "replace")])
    size = tokenizer.vocab.size
    assert named.encode("में हिन्दी है").count(size) == 1
    assert named.encode("में हिन्दीस").count(size) == 0
    word = Tokenizer.train(["می‌خواهم بروم हिन्दी"] * 3, kind="word", vocab_size=40)
    assert "می‌خواهم" in word.vocab.spellings
    assert [m[0] for _, ms in find_plain_words(["می‌خواهم हिन्दी-में"]) for m in ms] == [
        "می‌خواهم",
        "हिन्दी-में",
    ]


KEPT = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
STRIPPED = normalizers.BertNormalizer(lowercase=True)


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("plain English text", 0),
        ("über alle Wälder", 2 / 14),
        ("ガカきぎ", 2 / 4),
        ("한국어", 1),
        ("हिन्दी", 2 / 3),  # हि loses nothing; न् and दी (spacing) ...
        ("Việt", 1 / 4),
        ("שָׁלוֹם", 2 / 4),
        ("йод ёж", 2 / 5),
        ("ที่ดี", 1),
    ],
)
def test_the_share_of_letters_that_change(text: str, share: float) -> None:
    for one in forms(text) if text != "한국어" else [text]:
        slow = changed = 0
        for letter in letters.split_letters(unicodedata.normalize("NFC", one)):
            if letter[0].isalpha():
                slow += 1
                after = "".join(
                    c
                    for c in unicodedata.normalize("NFD", letter.lower())
                    if unicodedata.category(c) != "Mn"
                )
                changed += after != unicodedata.normalize("NFC", letter.lower())
        found = measure_changed(STRIPPED.normalize_str, [one])
        assert (found.letters, found.changed) == (slow, changed)
    if "ी" not in text:
        assert found.share == pytest.approx(share)
    assert measure_changed(KEPT.normalize_str, forms(text)[:1]).changed == 0


TEXT = "Über alle Wälder zog हिन्दी ガッコウ 한국어 die größte Straße.\n\n" * 60


def test_wordpiece_says_what_it_takes_away_and_may_keep_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")

    def run(*words: str) -> str:
        result = CliRunner().invoke(make_app(), list(words), env={"COLUMNS": "400"})
        assert result.exit_code == 0, result.output
        return " ".join(result.output.split())

    path, size = f"data.path={tmp_path / 'a.txt'}", "tokenizer.vocab_size=90"
    said = run("tokenize", path, "tokenizer=wordpiece", size, f"out={tmp_path / 'bert'}")
    assert "of the letters lose their marks or fall apart" in said
    assert "tokenizer.strip_accents=false keeps them" in said
    assert "of the letters lose their marks" in run(
        "data", "check", path, "tokenizer=wordpiece", size
    )
    start = ["size=tiny", "train.steps=1", f"run.dir={tmp_path / 'run'}"]
    assert "of the letters lose" in run(
        "pretrain", "bert", f"data.path={tmp_path / 'bert'}", *start
    )
    kept = ["tokenizer=wordpiece", size, "tokenizer.strip_accents=false"]
    said = run("tokenize", path, *kept, f"out={tmp_path / 'kept'}")
    assert "of the letters" not in said
    assert " 0.0% of the letters" in run("data", "check", path, *kept)
    assert "of the letters" not in run("tokenize", path, f"out={tmp_path / 'unigram'}")
    tokenizer = Tokenizer.load(tmp_path / "kept")
    assert tokenizer.decode(tokenizer.encode("Wälder हिन्दी ガッコウ")) == "wälder हिन्दी ガッコウ"
    assert (
        Tokenizer.load(tmp_path / "bert").decode(Tokenizer.load(tmp_path / "bert").encode("Wälder"))
        == "walder"
    )


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("strip", [None, True, False])
def test_strip_accents_as_bert_has_it(tmp_path: Path, lower: bool, strip: bool | None) -> None:
    transformers = pytest.importorskip("transformers")
    lines = TEXT.split("\n")
    tokenizer = Tokenizer.train(
        lines, kind="wordpiece", vocab_size=90, lowercase=lower, strip_accents=strip
    )
    loses = lower if strip is None else strip
    assert (tokenizer.normalize("é") == "e") is loses
    tokenizer.save(tmp_path / "saved")
    tokenizer.export_hf(tmp_path / "hf", model_max_length=64)
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("vocab.txt", "tokenizer_config.json"):
        (bare / name).write_bytes((tmp_path / "hf" / name).read_bytes())
    config = json.loads((bare / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert config.get("strip_accents") is strip
    ids = tokenizer.encode_batch(lines[:5])
    for folder in ("saved", "hf", "bare"):
        assert Tokenizer.load(tmp_path / folder).encode_batch(lines[:5]) == ids
    published = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert [published.encode(text, add_special_tokens=False) for text in lines[:5]] == ids


def test_a_bare_vocabulary_with_marks_keeps_them(tmp_path: Path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "über", "wälder", "größe", "und", "für"]
    (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    assert Tokenizer.load(tmp_path).encode("Über Wälder und") == [5, 6, 8]


def test_bleu_of_a_text_without_spaces_is_doubted(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("sacrebleu")
    predictions = [{"guess": "東京へ行く", "golds": ["東京へ行った"]}] * 3
    written._doubt.cache_clear()
    caplog.set_level("INFO")
    score = written.score(predictions, ["bleu"], tokenize="13a", lowercase=False)[0]["bleu"]
    assert score == 0
    assert "task.tokenize=char" in caplog.text
    caplog.clear()
    assert written.score(predictions, ["bleu"], tokenize="char", lowercase=False)[0]["bleu"] > 40
    english = [{"guess": "a b c d e", "golds": ["a b c d f"]}]
    written.score(english, ["bleu"], tokenize="13a", lowercase=False)
    assert "task.tokenize" not in caplog.text
    assert written._unsuited(["我们今天去公园"], "zh") == ""
    assert "zh" in written._unsuited(["ภาษาไทยเขียนติดกัน"], "zh")


def test_tokens_of_text_without_spaces_are_counted_by_character(tmp_path: Path) -> None:
    for name, text, unit in (
        ("zh", "今天天气很好我们去公园", "character"),
        ("en", "some words", "word"),
    ):
        (tmp_path / f"{name}.txt").write_text(f"{text}\n\n" * 80, encoding="utf-8")
        words = ["data", "check", f"data.path={tmp_path / name}.txt", "tokenizer=char"]
        result = CliRunner().invoke(make_app(), words, env={"COLUMNS": "300"})
        other = {"character": "word", "word": "character"}[unit]
        assert f"tokens a {unit}" in result.output
        assert f"tokens a {other}" not in result.output


def test_syllables_that_fall_apart_are_shown_in_parts() -> None:
    pairs = (("다", "\u1103\u1161"), ("é", "e"))
    assert "(다 to \u1103 \u1161, é to e)" in str(ChangedLetters(9, 2, pairs))


def test_written_chinese_and_japanese_have_no_spaces_between_pieces() -> None:
    texts = [
        "我今天買了iPhone。真的？「好」，他說：“走！”",
        "カタカナを使います、ね。",
        "𠮷野家…〇",
    ]
    known = [*texts, "hello , world don't “stop” it"]
    tokenizer = Tokenizer.train(known, kind="wordpiece", vocab_size=70)
    for text in texts:
        ids = tokenizer.encode(text)
        spelled = tokenizer.decode(ids)
        assert spelled.replace("了 iphone", "了iphone") == text.lower()
        assert tokenizer.encode(spelled) == ids
        for at in range(len(ids)):  # the beginning stays as it is written
            assert spelled.startswith(tokenizer.decode(ids[:at]))
    for text in ("hello , world", "hello “ stop ” it", "我 hello 他", "한국 말 을"):
        assert letters.close_gaps(text) == text
