"""Word starts of characters, and of Chinese words by a segmenter: jieba's, a plugin's."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tokenizers

from plmctl.core.errors import ConfigError, DataError, UsageError
from plmctl.core.parts import part_of
from plmctl.data import tokenizing
from plmctl.data.described import warn_of_lone_characters
from plmctl.data.shard_files import open_beginning
from plmctl.data.shards import Shards
from plmctl.data.survey import TextSource
from plmctl.data.tokenizing import TokenizingJob
from plmctl.text import segment, segmented
from plmctl.text.annotate import Wanted, choose_tracks, choose_word_starts, find_word_starts
from plmctl.text.inputs import read_lines
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.train import KINDS
from tests.text.test_tokenizer import CHINESE, TEXTS

WORDS = ["使用", "语言", "模型", "来", "预测", "一个", "词", "的", "probability", "概率"]
SENTENCE = "使用语言模型来预测下一个词的probability。"  # the example of Cui et al. (2021), table 1


@part_of("segment")
def fake(text: str) -> Iterator[tuple[int, int]]:
    """A segmenter: the longest word of a short list, else one character."""
    at = 0
    while at < len(text):
        end = at + max((len(word) for word in WORDS if text.startswith(word, at)), default=1)
        yield at, end
        at = end


@part_of("segment")
def beyond(text: str) -> list[tuple[int, int]]:
    return [(0, len(text) + 1)]


not_a_function = 3
DATA = Path(__file__).resolve().parents[2] / "../shared/data/pretraining/zhwiki/zhwiki-valid.txt.gz"
FAKE, BEYOND = f"{__name__}.fake", f"{__name__}.beyond"


def words(tokenizer: Tokenizer, texts: list[str], name: str | None = None) -> list[list[str]]:
    """The pieces of each word that the track begins."""
    ids, lengths = tokenizer.encode_flat(texts)
    track = choose_word_starts(tokenizer, name)
    assert track is not None
    found: list[list[str]] = []
    for piece, start in zip(tokenizer.pieces(ids), track(texts, ids, lengths), strict=True):
        found += [[]] if start else []
        found[-1].append(piece)
    return found


def test_words_of_characters() -> None:
    tokenizer = Tokenizer.train(["ab c1 中文,d"], kind="char", vocab_size=100)
    found = ["".join(word) for word in words(tokenizer, ["ab c1", "", "d中文a,b"])]
    assert found == ["ab", " ", "c1", "d", "中", "文", "a", ",", "b"]


def test_the_table_is_enough_for_other_kinds() -> None:
    tokenizer = Tokenizer.train(TEXTS, kind="wordpiece", vocab_size=1200)
    assert choose_tracks(tokenizer, Wanted()) == {}
    assert choose_word_starts(tokenizer, None) is None
    assert choose_tracks(tokenizer, Wanted(FAKE, tags=("sense",))) == {
        "word_start": bool,
        "sense": np.int32,
    }


def test_published_whole_words() -> None:
    """Cui et al. (2021), table 1: the word pieces of a Chinese word of several characters go
    together, ids stay as they are.
    """
    pieces = [
        *SENTENCE.replace("probability", ""),
        "pro",
        "##ba",
        "##bility",
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
    ]
    tokenizer = published(pieces)
    expected = [
        ["使", "用"],
        ["语", "言"],
        ["模", "型"],
        ["来"],
        ["预", "测"],
        ["下"],
        ["一", "个"],
        ["词"],
        ["的"],
        ["pro", "##ba", "##bility"],
        ["。"],
    ]
    assert words(tokenizer, [SENTENCE], FAKE) == expected
    assert words(tokenizer, [SENTENCE, " " + SENTENCE], FAKE) == expected * 2
    starts = tokenizer.vocab.word_start[tokenizer.encode(SENTENCE)]
    # without a segmenter each character is a word
    assert starts.sum() == len(tokenizer.encode(SENTENCE)) - 2


def published(pieces: list[str]) -> Tokenizer:
    """A tokenizer from the lines of a vocab.txt, as published models come."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "vocab.txt").write_text("\n".join(pieces), encoding="utf-8")
        return Tokenizer.load(folder)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["wordpiece", "char", "unigram", "bpe", "byte_bpe", "word"])
def test_any_tokenizer_with_any_segmenter(kind: str) -> None:
    texts = [SENTENCE, "plain text", CHINESE]
    tokenizer = Tokenizer.train([*TEXTS, *texts * 20], kind=kind, vocab_size=1500)
    ids, lengths = tokenizer.encode_flat(texts)
    track = choose_word_starts(tokenizer, FAKE)
    assert track is not None
    base = choose_word_starts(tokenizer, None)
    expected = tokenizer.vocab.word_start[ids] if base is None else base(texts, ids, lengths)
    at = 0
    # by hand: no start inside a word of the list
    for text, length in zip(texts, lengths.tolist(), strict=True):
        expected[at] = True
        long = [
            (start, end) for start, end in fake(text) if end - start > 1 and text[start] >= "一"
        ]
        inside = {place for start, end in long for place in range(start + 1, end)}
        for number, (start, _) in enumerate(tokenizer.encode_offsets(text)[1]):
            expected[at + number] &= start not in inside
        at += length
    assert (track(texts, ids, lengths) == expected).all()


def test_a_plugin_in_a_token_directory(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(
        "\n\n".join(f"{SENTENCE}第{n}。" for n in range(40)), encoding="utf-8"
    )
    source = TextSource(str(tmp_path / "a.txt"))
    manifest = tokenizing.tokenize(
        TokenizingJob(source, KINDS["wordpiece"](vocab_size=60), segment=FAKE, processes=1),
        tmp_path / "out",
    )
    assert manifest["settings"]["segment"] == FAKE
    shards, tokenizer = Shards.open(tmp_path / "out"), Tokenizer.load(tmp_path / "out")
    starts = shards.tracks["word_start"]
    found = [tokenizer.pieces(part) for part in np.split(shards.ids, np.flatnonzero(starts)[1:])]
    assert found[:7] == [
        ["使", "用"],
        ["语", "言"],
        ["模", "型"],
        ["来"],
        ["预", "测"],
        ["下"],
        ["一", "个"],
    ]
    with pytest.raises(DataError, match=r"beyond: 0\.\.\d+ is no word of a text of \d+ characters"):
        tokenizing.tokenize(
            TokenizingJob(source, KINDS["char"](), segment=BEYOND, processes=1), tmp_path / "bad"
        )
    assert not (tmp_path / "bad").exists()


@pytest.mark.parametrize("kind", ["wordpiece", "char", "unigram", "byte_bpe"])
def test_words_by_jieba(kind: str) -> None:
    pytest.importorskip("jieba")
    tokenizer = Tokenizer.train([*TEXTS, *[CHINESE] * 20], kind=kind, vocab_size=1500)
    joined = ["".join(word) for word in words(tokenizer, ["plain text", CHINESE], "jieba")]
    if kind in ("wordpiece", "char"):
        assert {"今天天气", "公园", "散步", "北京大学", "图书馆", "，"} <= set(joined)
    ids, _ = tokenizer.encode_flat(["plain text", CHINESE])
    assert len(joined) <= tokenizer.vocab.word_start[ids].sum() + 2 or kind == "char"


def test_the_model_of_jieba_finds_traditional_words() -> None:
    pytest.importorskip("jieba")
    text = "那個學生觀察了戰役和艦隊"
    alone, found = (
        {text[a:b] for a, b in segment.find(name)(text)} for name in ("jieba", "jieba_hmm")
    )
    assert "學生" not in alone
    assert {"學生", "戰役", "艦隊"} <= found


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("云计算\t5", "write it as: 云计算 5"),
        ("云计算,5", "write it as: 云计算 5"),
        ("云计算 5 n x", "write it as: 云计算 5 n"),
        ('{"word": "云计算"}', "leave this line out"),
        ("今天，我们去公园", "leave this line out"),
    ],
)
def test_a_file_that_is_no_dictionary_is_refused_with_its_line(
    tmp_path: Path, line: str, fix: str
) -> None:
    file = tmp_path / "words.txt"
    file.write_text(f"区块链 10 nz\n\nC++\n阿尔伯特·爱因斯坦 nr\n{line}\n", encoding="utf-8")
    with pytest.raises(DataError, match=rf"words\.txt:5: no entry.*\n  fix: .*{fix}"):
        segment.read_dictionary(file)
    file.write_text("\n", encoding="utf-8")
    with pytest.raises(DataError, match="no entries"):
        segment.read_dictionary(file)
    with pytest.raises(ConfigError, match=rf"no file .*\n  fix: data\.segment=jieba:{file}"):
        segment.find(f"jieba:{tmp_path / 'wrods.txt'}")


def test_tokens_are_known_by_the_words_of_the_dictionary(tmp_path: Path) -> None:
    file, copy = tmp_path / "words.txt", tmp_path / "a"
    copy.mkdir()
    file.write_text("区块链 10 nz\n云计算\n", encoding="utf-8")
    assert segment.read_dictionary(file) == [("区块链", 10), ("云计算", None)]
    shutil.copy(file, copy)
    names = [segment.identify(f"jieba:{folder / 'words.txt'}") for folder in (tmp_path, copy)]
    assert names[0] == names[1]
    file.write_text("区块链 10 nz\n", encoding="utf-8")
    assert segment.identify(f"jieba:{file}") != names[0]
    assert segment.identify("jieba") == "jieba"


def test_a_segmenter_that_knows_no_words_is_named(tmp_path: Path) -> None:
    for text, warned in (("他" * 40 + "甲乙丙丁" * 60, True), (SENTENCE * 20, False)):
        (tmp_path / "a.txt").write_text(text, encoding="utf-8")
        tokenizing.tokenize(
            TokenizingJob(
                TextSource(tmp_path / "a.txt"),
                KINDS["char"](),
                valid_share=0,
                segment=FAKE,
                at_most=True,
                processes=1,
            ),
            out := tmp_path / f"out-{warned}",
        )
        found = warn_of_lone_characters(open_beginning(out), Tokenizer.load(out).vocab)
        named = f"100% of the Chinese characters are words of one character by data.segment={FAKE}"
        assert [named in line for line in found] == [True] * warned


@pytest.mark.shared
@pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data")
def test_published_whole_words_of_real_text() -> None:
    """The published rule for given words (Chinese-BERT-wwm, as run_chinese_ref.py has it), written
    as its loop over characters.

    It looks for the words of the sentence anywhere in it, longest first; a segmenter knows where
    they are. The two may differ where a word of the sentence also stands across two others.
    """
    pytest.importorskip("jieba")
    lines = [line for _, line in read_lines(DATA) if "。" in line][:200]
    tokenizer = Tokenizer.train(lines, kind="wordpiece", vocab_size=2500)
    segmenter, same, total = segment.find("jieba"), 0, 0
    for line in lines:
        ids, lengths = tokenizer.encode_flat([line])
        track = choose_word_starts(tokenizer, "jieba")
        assert track is not None
        starts = track([line], ids, lengths)
        assert not any(
            starts[n] for n, piece in enumerate(tokenizer.pieces(ids)) if piece.startswith("##")
        )
        known = {
            word
            for a, b in segmenter(line)
            if len(word := line[a:b]) > 1 and all("一" <= c <= "\u9fff" for c in word)
        }
        pieces, continued, at = tokenizer.pieces(ids), set(), 0
        while at < len(pieces):
            length = next((n for n in range(9, 1, -1) if "".join(pieces[at : at + n]) in known), 1)
            # single characters only
            if pieces[at : at + length] == list("".join(pieces[at : at + length])):
                continued |= set(range(at + 1, at + length))
            at += length
        expected = np.array(
            [not piece.startswith("##") and n not in continued for n, piece in enumerate(pieces)]
        )
        same += int((starts == expected).sum())
        total += len(starts)
    assert total > 20_000
    assert same > 0.99 * total


@pytest.mark.parametrize(
    ("find", "setting"),
    [
        (segment.find, "data.segment=jieba"),
        (partial(segment.find, path="segment"), "segment=jieba"),
        (segmented.find, "tokenizer.segment=jieba"),
    ],
)
def test_jieba_is_missing(
    find: Callable[[str], object], setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jieba", None)
    with pytest.raises(UsageError) as error:
        find("jieba")
    assert str(error.value).startswith(f"{setting} needs jieba\n  fix: pip install 'jieba>=0.42'")


def test_unknown_segmenters() -> None:
    for name, message in {
        "jeiba": (
            r"must be jieba, jieba_hmm \(or jieba:<your dictionary>\), or <module>\.<function> .*"
            r"did you mean 'jieba'(.|\n)*data\.segment=jieba"
        ),
        "nowhere.at.all": "cannot be imported .*nowhere",
        f"{__name__}.fak": "cannot be imported .*fak",
        f"{__name__}.not_a_function": "does not declare itself a segmenter",
    }.items():
        with pytest.raises(ConfigError, match=rf"data\.segment='{name}': {message}"):
            segment.find(name)
    with pytest.raises(ConfigError, match=r"fix: --plugin tests"):
        segment.find(FAKE, plugins=("others",))
    assert segment.find(FAKE, plugins=("tests",)) is fake


def test_a_manifest_knows_its_segmenter(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"{SENTENCE}\n\n{CHINESE}\n\nplain", encoding="utf-8")
    settings = []
    for name in (None, FAKE):
        tokenizing.tokenize(
            TokenizingJob(
                TextSource(str(tmp_path / "a.txt")), KINDS["char"](), segment=name, processes=1
            ),
            tmp_path / "out",
        )
        settings.append(
            json.loads((tmp_path / "out/manifest.json").read_text(encoding="utf-8"))["settings"][
                "segment"
            ]
        )
    assert settings == [None, FAKE]


PARTED = [
    "Don't they're 's Robert. isn't it?? A-B, 12.5 km (x)",
    "Здравствуй, мир! 你好,世界 naïve 😀😀 e\u0301",
    "two  spaces\nand\ta line",
    " before",
    "",
]


@pytest.mark.parametrize("kind", ["byte_bpe", "wordpiece"])
def test_words_are_the_parts_that_the_library_cuts(kind: str, tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(TEXTS[:300], kind=kind, vocab_size=400)
    tokenizer.export_hf(tmp_path, model_max_length=64)
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    find = find_word_starts(Tokenizer.load(tmp_path))
    for text in PARTED:
        encoding = library.encode(text, add_special_tokens=False)
        owner = encoding.word_ids
        expected = [n == 0 or owner[n] != owner[n - 1] for n in range(len(owner))]
        assert find(np.array(encoding.ids, np.int64)).tolist() == expected, text
