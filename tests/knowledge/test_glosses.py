"""Senses by gloss (SentiLARE): the worked formula, forms of words, cosines against scikit-learn and
against states of the encoder, and the command on text whose words differ in polarity by sentence.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer

from plmctl.artifacts.loading import load
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import AbsentData, DataError
from plmctl.data.shards import Shards
from plmctl.datasets.polarity import VectorCosines, WordCosines
from plmctl.knowledge.glosses import (
    GlossedSense,
    choose_polarity,
    find_senses,
    read_senses,
    weigh_senses,
)
from tests.command import plmctl

LINES = [
    "# SentiWordNet",
    "a\t1\t0\t0.5\tcold#1 icy#2\thaving a low temperature of the weather",
    "a\t2\t0.875\t0\tcold#2\tfresh drink in summer",
    "n\t3\t0\t0.125\tcold#1\ta mild illness with a runny nose",
    "v\t4\t0.125\t0\tdrink#1\ttake in liquids",
    "n\t5\t0\t0\tsummer#1\tthe season of heat",
]


@pytest.fixture
def lexicon(tmp_path: Path) -> Path:
    (tmp_path / "swn.txt").write_text("\n".join(LINES) + "\n")
    return tmp_path / "swn.txt"


def test_the_worked_formula() -> None:
    """Two senses of rank 1 and 2, cosines 0.2 and 0.6: scores (0.2 + 1) / 2 and (0.6 + 1) / 4."""
    senses = [GlossedSense(3, -0.75, 1, "a"), GlossedSense(3, 0.5, 2, "b")]
    first, second = math.exp(0.6), math.exp(0.4)
    weights = weigh_senses(senses, [0.2, 0.6])
    assert weights == pytest.approx([first / (first + second), second / (first + second)])
    assert weights == pytest.approx([0.549834, 0.450166], abs=1e-6)
    assert choose_polarity(senses, [0.2, 0.6]) == (1, 3)  # -0.412 + 0.225 < 0
    # -0.75 * e^0.05 + 0.9 * e^0.45 > 0: the nearer gloss decides
    far = [senses[0], senses[1]._replace(score=0.9)]
    assert choose_polarity(far, [-0.9, 0.8])[0] == 2
    assert choose_polarity(far, [0.9, -1.0])[0] == 1
    assert choose_polarity([senses[0]._replace(score=0.0)], [0.3]) == (0, 3)
    noun = GlossedSense(1, 0.0, 1, "c")  # one sense of a noun, two of an adjective
    assert choose_polarity([noun, *senses], [0.2, 0.2, 0.6])[1] == 3


@pytest.mark.parametrize("seed", range(4))
def test_weights_by_a_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    senses = [
        GlossedSense(int(rng.integers(1, 5)), float(rng.normal()), int(rng.integers(1, 6)), "")
        for _ in range(5)
    ]
    cosines = rng.uniform(-1, 1, 5).tolist()
    powers = [math.exp((c + 1) / (2 * s.rank)) for s, c in zip(senses, cosines, strict=True)]
    score = sum(s.score * p / sum(powers) for s, p in zip(senses, powers, strict=True))
    assert choose_polarity(senses, cosines).polarity == (2 if score > 0 else 1)


def test_senses_of_forms(lexicon: Path) -> None:
    senses = read_senses(lexicon)
    assert [(s.part, s.rank) for s in find_senses("Cold", senses)] == [(1, 1), (3, 1), (3, 2)]
    assert [s.gloss[:3] for s in find_senses("colder", senses)] == ["hav", "fre"]
    assert [s.part for s in find_senses("colds", senses)] == [1]
    assert [s.part for s in find_senses("drinking", senses)] == [2]
    assert find_senses("cold", senses, part=1)[0].score == -0.125
    assert not find_senses("warm", senses)


@pytest.mark.parametrize("line", ["a\t1\t0\t0\tcold#1", "x\t1\t0\t0\tcold#1\tg", "good\t1"])
def test_damaged_lines_are_named(line: str, lexicon: Path) -> None:
    lexicon.write_text(f"{LINES[1]}\n{line}\n")
    with pytest.raises(DataError, match=r"swn\.txt:2: no synset with a gloss"):
        read_senses(lexicon)
    with pytest.raises(AbsentData, match="no such lexicon"):
        read_senses(lexicon.with_name("none"))


def test_cosines_of_words_are_those_of_scikit_learn() -> None:
    glosses = [line.split("\t")[-1] for line in LINES[1:]]
    sentence = "a cold drink is fresh in the heat of summer , in summer"
    pattern = r"[^\W\d_]+"
    table = TfidfVectorizer(token_pattern=pattern).fit(glosses)
    wanted = (table.transform(glosses) @ table.transform([sentence]).T).toarray()[:, 0]
    found = WordCosines(glosses).compare(sentence, glosses)
    assert found == pytest.approx(wanted.tolist(), abs=1e-12)
    assert WordCosines(glosses).compare("nothing known", glosses) == [0.0] * len(glosses)


@pytest.fixture(scope="module")
def encoder(tokens_of: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("run") / "bert"
    words = ["size=tiny", "size.width=16", "size.inner_width=32", "size.num_heads=2"]
    words += ["train.steps=1", "train.batch_size=2", "format.max_length=32", "eval.rows=2"]
    plmctl("pretrain", "bert", *words, f"data.path={tokens_of('wordpiece')}", f"run.dir={run}")
    return run


def test_cosines_of_vectors_are_those_of_mean_states(encoder: Path) -> None:
    loaded = load(str(encoder))
    texts = ["the value of a list", "a function", "it returns the value"]
    part = VectorCosines(loaded, batch_size=2, device="cpu")
    means = []
    for text in texts:
        ids = [loaded.vocab.cls, *loaded.tokenizer.encode(text), loaded.vocab.sep]
        row = Seq(torch.tensor([ids]), torch.tensor([len(ids)]), full=True)
        with torch.no_grad():
            means.append(loaded.model(Batch(torch.arange(1), {"text": row})).last[0].mean(0))
    wanted = [
        torch.nn.functional.cosine_similarity(means[0], mean, dim=0).item() for mean in means[1:]
    ]
    assert part.compare(texts[0], texts[1:]) == pytest.approx(wanted, abs=1e-5)
    part.read(texts)
    assert len(part.known) == 3


REVIEWS = "Cold weather, of low temperature.\nA fresh cold drink in summer.\n\nHe drinks it.\n"


def marks(row: dict[str, Any], name: str) -> dict[str, int]:
    return {row["text"][each["start"] : each["end"]]: each["id"] for each in row[name]}


def test_a_word_has_the_polarity_of_its_sentence(lexicon: Path, tmp_path: Path) -> None:
    text, out = tmp_path / "reviews.txt", tmp_path / "marked.jsonl"
    text.write_text(REVIEWS)
    given = ["data.lines=sentence", f"data.path={text}", f"lexicon={lexicon}", f"out={out}"]
    said = plmctl("data", "polarity", *given)
    assert "14 words, 35.7% with senses: 1 neutral, 1 negative, 3 positive" in said
    first, second = map(json.loads, out.read_text().splitlines())
    polarity = [(first["text"][m["start"] : m["end"]], m["id"]) for m in first["polarity"]]
    assert polarity == [("Cold", 1), ("cold", 2), ("drink", 2)]
    assert marks(first, "pos") == {"Cold": 3, "cold": 3, "drink": 2, "summer": 1}
    assert marks(second, "polarity") == {"drinks": 2}
    assert "out" in plmctl("data", "polarity", *given, code=2)
    plmctl("data", "polarity", *given, "overwrite=true", "--json")
    # the marks go on to the noise
    tokens = tmp_path / "tokens"
    words = ["tokenizer=wordpiece", "tokenizer.vocab_size=45", "data.tags=[polarity,pos]"]
    plmctl("tokenize", f"data.path={out}", *words, "data.valid_share=0", f"out={tokens}")
    track = Shards.open(tokens).tracks["polarity"]
    assert sorted({*track.tolist()}) == [0, 1, 2]


def test_parts_of_speech_of_a_tagger_are_kept(lexicon: Path, tmp_path: Path) -> None:
    text, out = tmp_path / "reviews.jsonl", tmp_path / "marked.jsonl"
    row = {"text": "A cold  drink .", "pos": [{"start": 2, "end": 6, "id": 1}], "rating": []}
    row["rating"] = [{"start": 0, "end": 15, "id": 4}]
    text.write_text(json.dumps(row) + "\n")
    given = [f"data.path={text}", f"lexicon={lexicon}", f"out={out}", "data.tags=[pos,rating]"]
    said = plmctl("data", "polarity", *given)
    assert "data.tags=[pos,rating,polarity]" in said
    found = json.loads(out.read_text())
    assert marks(found, "polarity") == {"cold": 1}  # the illness
    assert marks(found, "pos") == {"cold": 1}
    assert list(marks(found, "rating").values()) == [4]


def test_vectors_of_a_run(lexicon: Path, encoder: Path, tmp_path: Path) -> None:
    text, out = tmp_path / "reviews.txt", tmp_path / "marked.jsonl"
    text.write_text(REVIEWS)
    given = [f"data.path={text}", f"lexicon={lexicon}", f"out={out}", f"checkpoint={encoder}"]
    plmctl("data", "polarity", *given, "data.lines=sentence", "device=cpu")
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [marks(row, "pos") for row in rows][1] == {"drinks": 2}
    part = VectorCosines(load(str(encoder)), batch_size=2, device="cpu")
    senses = find_senses("cold", read_senses(lexicon))
    sentence = "A fresh cold drink in summer."
    wanted = choose_polarity(senses, part.compare(sentence, [s.gloss for s in senses]))
    own = [m["id"] for m in rows[0]["polarity"] if rows[0]["text"][m["start"]] == "c"]
    assert own == ([wanted.polarity] if wanted.polarity else [])


def test_text_that_the_lexicon_does_not_know(lexicon: Path, tmp_path: Path) -> None:
    text, out = tmp_path / "a.txt", tmp_path / "marked.jsonl"
    text.write_text("Nichts davon.\n")
    said = plmctl(
        "data", "polarity", f"data.path={text}", f"lexicon={lexicon}", f"out={out}", code=3
    )
    assert "none of the words of the text is in it" in said
    assert not out.exists()
