"""Parallel text: pairs of lines, of fields and of columns; each is a document of exactly two
sentences.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from plmctl.core.errors import ConfigError, DataError
from plmctl.data import encoding, tokenizing
from plmctl.data.shards import Shards
from plmctl.data.survey import TextSource
from plmctl.data.tokenizing import TokenizingJob
from plmctl.inputs.tokenize import find_sources
from plmctl.text.reader import read_pairs
from plmctl.text.tokenizer import Tokenizer
from plmctl.text.train import KINDS
from tests.text.test_tokenizer import TEXTS

ENGLISH = ["A dog. It runs!", "Two  cats", "", "the end", "\u200e"]
CHINESE = ["一只狗。它跑！", "两只猫", "空", "", "终"]
DATA = Path(__file__).resolve().parents[2] / "../shared/data"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "a.en").write_text("\r\n".join(ENGLISH) + "\r\n", encoding="utf-8")
    with gzip.open(tmp_path / "a.zh.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(CHINESE))
    return tmp_path / "a.en", tmp_path / "a.zh.gz"


def both(*how: object, **more: object) -> list[tuple[str, ...]]:
    return [document.paragraphs for document in read_pairs(*how, **more)]  # type: ignore[arg-type]


def test_lines_of_two_files(files: tuple[Path, Path]) -> None:
    assert both(files[0], targets=files[1]) == list(zip(ENGLISH, CHINESE, strict=True))


def test_fields_of_rows_and_columns_of_tables(tmp_path: Path) -> None:
    wanted = [("a", "1\n2"), ("b", "3")]
    rows = [json.dumps({"en": left, "zh": right, "id": 7}) for left, right in wanted]
    (tmp_path / "a.jsonl").write_text("\n".join(rows), encoding="utf-8")
    assert both(tmp_path / "a.jsonl", fields=["en", "zh"]) == wanted
    (tmp_path / "a.tsv").write_text("zh\tid\ten\n1\t7\ta \n3\t7\tb\n", encoding="utf-8")
    assert both(tmp_path / "a.tsv", fields=["en", "zh"]) == [("a", "1"), ("b", "3")]
    assert both(tmp_path / "a.tsv", fields=["3", "1"]) == [("en", "zh"), ("a", "1"), ("b", "3")]


@pytest.mark.parametrize("kind", ["char", "unigram", "byte_bpe"])
def test_each_pair_is_a_document_of_two_sentences(
    files: tuple[Path, Path], tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "CHUNK", 100)  # some chunks without a whole pair
    texts = [*TEXTS[:200], *ENGLISH, *CHINESE]
    more = {"character_coverage": 1.0} if kind == "unigram" else {}
    Tokenizer.train(texts, kind=kind, vocab_size=400, **more).save(tmp_path / "t")
    recipe = KINDS[kind](path=str(tmp_path / "t"))
    source = TextSource(str(files[0]), target=str(files[1]))
    manifest = tokenizing.tokenize(
        TokenizingJob(source, recipe, valid_share=0.3, processes=1), tmp_path / "out"
    )
    tokenizer, found = Tokenizer.load(tmp_path / "out"), []
    for split in ("train", "valid"):
        shards = Shards.open(tmp_path / "out", split)
        assert shards.pairs
        assert (shards.documents == range(0, len(shards.sentences), 2)).all()
        texts = [
            tokenizer.decode(shards.ids[a:b])
            for a, b in zip(shards.sentences[:-1], shards.sentences[1:], strict=True)
        ]
        found += list(zip(texts[::2], texts[1::2], strict=True))
    kept = [("A dog. It runs!", "一只狗。它跑！"), ("Two  cats", "两只猫"), ("\u200e", "终")]
    if kind == "unigram":  # NFKC, and no tokens at all for a mark of direction
        kept = [("A dog. It runs!", "一只狗。它跑!"), ("Two cats", "两只猫")]
    assert sorted(found) == sorted(kept)
    assert manifest["pairs"] is True
    assert manifest["left_out"] == {"pairs with an empty side": 5 - len(kept)}
    assert [Path(entry["path"]).name for entry in manifest["files"]] == ["a.en", "a.zh.gz"]


def test_other_text_has_no_pairs(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One. Two.\n\nThree.\n\nFour.", encoding="utf-8")
    tokenizing.tokenize(
        TokenizingJob(TextSource(str(tmp_path / "a.txt")), KINDS["char"](), processes=1),
        tmp_path / "out",
    )
    assert not Shards.open(tmp_path / "out").pairs


def test_files_that_do_not_fit(files: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "short").write_text("one\ntwo\n", encoding="utf-8")
    with pytest.raises(
        DataError,
        match=r"a\.en:3: there is no line 3 in .*short: the two files are not line-parallel",
    ):
        both(files[0], targets=tmp_path / "short")
    with pytest.raises(DataError, match=r"a\.en:3: there is no line 3 in .*short"):
        both(tmp_path / "short", targets=files[0])
    with pytest.raises(DataError, match="1 source files, but 2 target files"):
        both(files[0], targets=[files[1], tmp_path / "short"])
    (tmp_path / "a.jsonl").write_text('{"en": "a", "de": "b"}\n{"en": "c"}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.jsonl: has rows, not lines"):
        both(files[0], targets=tmp_path / "a.jsonl")
    with pytest.raises(
        DataError, match=r"a\.jsonl:2: no text in a field 'de' (.|\n)*data\.fields=\[en,'<name>'\]"
    ):
        both(tmp_path / "a.jsonl", fields=["en", "de"])
    with pytest.raises(DataError, match=r"a\.en: has no fields(.|\n)*data\.target_path"):
        both(files[0], fields=["en", "de"])
    (tmp_path / "a.tsv").write_text("en\tde\nx\ty\nx\n", encoding="utf-8")
    with pytest.raises(
        DataError, match=r"a\.tsv:1: no column 'zh' \(it has en, de\)(.|\n)*data\.fields=\[1,2\]"
    ):
        both(tmp_path / "a.tsv", fields=["en", "zh"])
    with pytest.raises(DataError, match=r"a\.tsv:3: 1 columns, the first line has 2"):
        both(tmp_path / "a.tsv", fields=["1", "2"])


def test_an_empty_file_of_one_language_keeps_its_place(tmp_path: Path) -> None:
    """Left out on one side each, other lines would go together."""
    for name, text in {
        **{"a.en": "one\n", "b.en": "", "c.en": "three\n"},
        **{"a.de": "eins\n", "b.de": "zwei\n", "c.de": ""},
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    sides = [[tmp_path / f"{name}.{side}" for name in "abc"] for side in ("en", "de")]
    with pytest.raises(DataError, match=r"b\.de:1: there is no line 1 in .*b\.en"):
        list(read_pairs(sides[0], targets=sides[1]))
    (tmp_path / "b.de").write_text("", encoding="utf-8")
    (tmp_path / "c.de").write_text("drei\n", encoding="utf-8")
    pairs = [document.sentences for document in read_pairs(sides[0], targets=sides[1])]
    assert pairs == [["one", "eins"], ["three", "drei"]]


def test_settings_that_do_not_fit(files: tuple[Path, Path]) -> None:
    with pytest.raises(ConfigError, match=r"data\.fields=.*two different fields"):
        both(files[0], fields=["en"])
    with pytest.raises(ConfigError, match=r"either data\.fields .* or data\.target_path"):
        both(files[0], targets=files[1], fields=["en", "de"])
    with pytest.raises(ConfigError, match="built-in text is not parallel"):
        both(None, targets=files[1])
    with pytest.raises(ConfigError, match=r"data\.tags=.*parallel text has no spans"):
        TextSource(files[0], target=files[1], tags=("sense",))


def test_validation_needs_its_translations_too(files: tuple[Path, Path]) -> None:
    names = ("field", "lines", "valid_target_path", "target_path", "bytes", "valid_bytes")
    data = dict.fromkeys(names)
    data |= {"path": files[0], "valid_path": files[0], "spans": [], "tags": [], "fields": []}
    with pytest.raises(ConfigError, match=r"fix: data\.valid_target_path=TRANSLATIONS"):
        find_sources({**data, "target_path": files[1]}, files[0])
    with pytest.raises(
        ConfigError, match=r"data\.path is not parallel text\s+fix: data.target_path=TRANSLATIONS"
    ):
        find_sources({**data, "valid_target_path": files[1]}, files[0])


@pytest.mark.shared
@pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data")
def test_real_pairs() -> None:
    folder = DATA / "translation"
    found = both(folder / "multi30k/train.en.gz", targets=folder / "multi30k/train.de.gz")
    assert len(found) == 29000
    assert all(map(all, found))
    assert len(both(folder / "news-commentary-v13-en-zh.sample.tsv", fields=["1", "2"])) == 1000
