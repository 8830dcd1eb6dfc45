"""WordNet's dictionary: a small one that is written here, an independent reader of its files, and
the real one where it is installed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from plmctl.core.errors import AbsentData, DataError
from plmctl.knowledge.wordnet import PARTS, SUPERSENSES, WordNet
from tests.command import plmctl
from tests.knowledge.tiny_wordnet import write

SENSES = "model.embedding.table.senses"
INSTALLED = Path("/usr/share/wordnet")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> WordNet:
    return WordNet(write(tmp_path_factory.mktemp("wordnet")))


def names(wordnet: WordNet, word: str, part: str | None = None) -> set[str]:
    return {SUPERSENSES[number] for number in wordnet.supersenses(word, part)}


def test_there_are_45_supersenses() -> None:
    assert len(set(SUPERSENSES)) == 45
    assert SUPERSENSES[5] == "noun.animal"  # lexnames(5WN)
    assert SUPERSENSES[29] == "verb.body"
    assert SUPERSENSES[44] == "adj.ppl"


@pytest.mark.parametrize(
    ("word", "part", "lemmas"),
    [
        ("dogs", "noun", ["dog"]),  # a rule
        ("Dogs", "verb", ["dog"]),
        ("axes", "noun", ["ax", "axis"]),  # exceptions
        ("wolves", "noun", ["wolf"]),
        ("ran", "verb", ["run"]),
        ("better", "adj", ["good"]),
        ("domestic dog", "noun", ["domestic_dog"]),
        ("dog", "noun", ["dog"]),
        ("boxes", "noun", []),
        ("s", "noun", []),
    ],
)
def test_lemmas(tiny: WordNet, word: str, part: str, lemmas: list[str]) -> None:
    assert tiny.lemmatize(word, part) == lemmas


def test_supersenses_are_those_of_all_synsets(tiny: WordNet) -> None:
    assert names(tiny, "bass") == {"noun.animal", "noun.person", "noun.artifact"}
    assert names(tiny, "dogs") == {"noun.animal", "verb.motion"}
    assert names(tiny, "dogs", "noun") == {"noun.animal"}
    assert names(tiny, "qwertz") == set()


def test_synsets(tiny: WordNet) -> None:
    (dog,) = tiny.synsets("dog", "noun")
    assert dog.words == ("dog", "domestic_dog")
    assert dog.gloss == "it barks"
    assert SUPERSENSES[dog.supersense] == "noun.animal"
    assert tiny.synsets("bad")[0].words == ("bad", "evil")  # without the marker of its place


def test_pairs(tiny: WordNet) -> None:
    assert list(tiny.pairs("antonym")) == [("bad", "good")]
    hypernyms = list(tiny.pairs("hypernym"))
    assert set(hypernyms) == {
        (low, high)
        for low in ("dog", "domestic_dog", "wolf", "bass", "horse")
        for high in ("animal", "beast")
    }
    assert len(hypernyms) == 10
    synonyms = list(tiny.pairs("synonym"))
    assert ("chase", "dog") in synonyms
    assert ("dog", "chase") not in synonyms
    with pytest.raises(ValueError, match="did you mean 'synonym'"):
        list(tiny.pairs("synonyms"))


@pytest.mark.slow  # the small dictionary stays
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_an_independent_reader_finds_the_same(
    tiny: WordNet, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = pytest.importorskip("nltk.corpus.reader.wordnet")
    monkeypatch.setattr("nltk.pathsec.ENFORCE", False)  # it reads only folders of its own
    # maps between versions
    monkeypatch.setattr(corpus.WordNetCorpusReader, "map_wn", lambda self: None)
    (tiny.folder / "lexnames").write_text(
        "".join(f"{n:02d}\t{name}\t1\n" for n, name in enumerate(SUPERSENSES)), encoding="utf-8"
    )
    (tiny.folder / "cntlist.rev").write_text("", encoding="utf-8")
    oracle = corpus.WordNetCorpusReader(str(tiny.folder), None)
    for part, letter in zip(PARTS, "nvar", strict=True):
        for word in ("dogs", "axes", "ran", "running", "runs", "better", "wolves", "bass", "bad"):
            theirs = oracle.synsets(word, letter)
            assert {s.offset() for s in theirs} == {s.offset for s in tiny.synsets(word, part)}
            assert {s.lexname() for s in theirs} == names(tiny, word, part)


def test_a_missing_dictionary_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AbsentData, match=r"index\.noun.*\n.*wordnet-base"):
        WordNet.open(tmp_path)
    words = [f"data.path={__file__}", f"data.cache_dir={tmp_path / 'cache'}", "size=tiny"]
    said = plmctl("pretrain", "sensebert", *words, f"{SENSES}.path={tmp_path}", code=3)
    assert "index.noun" in said
    assert not (tmp_path / "cache").exists()  # before a text is tokenized
    monkeypatch.setenv("WNSEARCHDIR", str(tmp_path))
    monkeypatch.setattr("plmctl.knowledge.wordnet._USUAL", ())
    with pytest.raises(AbsentData, match="wordnet-base"):
        WordNet.open()
    monkeypatch.setenv("WNSEARCHDIR", str(write(tmp_path / "dict")))
    assert WordNet.open().lemmas("verb") == [
        *("chase", "dog", "flow", "follow", "remember", "return", "run")
    ]


def test_damaged_files_are_named(tmp_path: Path) -> None:
    write(tmp_path)
    index = tmp_path / "index.adj"
    index.write_text(index.read_text() + "torn a x\n")
    with pytest.raises(DataError, match=r"index\.adj:5: not an entry"):
        WordNet(tmp_path)
    write(tmp_path)
    data = (tmp_path / "data.noun").read_bytes()
    (tmp_path / "data.noun").write_bytes(data[: len(data) // 3])
    with pytest.raises(DataError, match=r"data\.noun: no synset at byte"):
        WordNet(tmp_path).supersenses("module")


@pytest.mark.skipif(not INSTALLED.is_dir(), reason="WordNet is not installed")
def test_the_real_dictionary() -> None:
    """Numbers of wnstats(7WN): 155,287 pairs of a word and a part of speech."""
    wordnet = WordNet.open(INSTALLED)
    assert sum(len(wordnet.lemmas(part)) for part in PARTS) == 155_287
    assert names(wordnet, "bass", "noun") == {
        *("noun.food", "noun.animal", "noun.artifact", "noun.person", "noun.attribute"),
        "noun.communication",
    }
