"""What is held out of a text: by its documents' content, and as much as losses need."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.core.pasted import spell_fix
from plmctl.data.held_out import ENOUGH, FIX, OTHER, HeldText, find_fix, read_held_out
from plmctl.data.survey import HELD, TextSource, find_held_out, survey_text
from plmctl.report.card import make_card
from plmctl.report.subject import find_subject
from plmctl.report.write import make_blocks
from tests.commands.test_pretrain_command import TINY, pretrain
from tests.report import fabricated

SPACE = 1 << 64
WORDS = [f"{a}{b}{c}" for a in "blmst" for b in "aeio" for c in "dgnr"]


def hold(sizes: list[int], share: float = 0.01, seed: int = 0) -> tuple[int, int]:
    """(documents, characters) that are held out of documents of these sizes."""
    rng = np.random.default_rng(seed)
    hashes = rng.integers(0, SPACE - 1, len(sizes), dtype=np.uint64)
    above, threshold = find_held_out(hashes, np.array(sizes, np.uint64), share)
    held = [
        size for each, size in zip(hashes.tolist(), sizes, strict=True) if above < each <= threshold
    ]
    return len(held), sum(held)


def test_a_share_of_many_documents_is_that_of_their_number() -> None:
    sizes = [1000 + n % 700 for n in range(20_000)]
    rng = np.random.default_rng(0)
    hashes = rng.integers(0, SPACE - 1, len(sizes), dtype=np.uint64)
    found = find_held_out(hashes, np.array(sizes, np.uint64), 0.01)
    assert found == (-1, int(0.01 * SPACE))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "sizes",
    [
        [11_000] * 136,  # 1.5 MB of few documents
        [4] * 100 + [40_000] * 36,  # most of them nearly empty
        [3] * 10_000 + [30_000] * 50,  # lines beside articles
        [1_000_000] + [700] * 900,  # one that is most of the text
    ],
)
def test_enough_of_few_or_uneven_documents_is_held_out(sizes: list[int], seed: int) -> None:
    documents, held = hold(sizes, seed=seed)
    assert HELD <= held <= 0.2 * sum(sizes)
    assert 0 < documents < len(sizes)


def test_of_little_text_a_tenth_is_enough_and_of_one_document_nothing_is() -> None:
    assert hold([100] * 120, 0.1)[1] >= 0.05 * 12_000
    assert 0.1 * 3000 <= hold([50] * 60)[1] <= 0.2 * 3000
    assert hold([1_000_000]) == (0, 0)
    assert hold([900, 1000])[0] == 1  # whatever it is: there is no other way
    assert hold([10] * 100, 0.0) == (0, 0)


def test_a_survey_holds_what_it_says(tmp_path: Path) -> None:
    draw = random.Random(0)
    texts = ["x."] * 4 + [" ".join(draw.choices(["red", "blue", "sea"], k=1500)) for _ in range(30)]
    file = tmp_path / "text.jsonl"
    for order in (texts, texts[::-1]):
        file.write_text("".join(json.dumps({"text": text}) + "\n" for text in order))
        source = TextSource(str(file))
        found = survey_text(source, valid_share=0.01, sample_bytes=1 << 20)
        held = [each for each in source.documents() if found.holds(each.identity)]
        assert sum(len(text) + 1 for each in held for text in each.paragraphs) == found.held
        assert found.held >= 0.1 * found.bytes
        assert not any(found.holds(each.identity) for each in found.sample)


@pytest.mark.parametrize(("documents", "enough"), [(40, True), (3, False)])
def test_a_run_its_page_and_its_card_say_how_much_is_held_out(
    documents: int, enough: bool, tmp_path: Path
) -> None:
    draw = random.Random(1)
    long = 1200 if enough else 60
    texts = (" ".join(draw.choices(WORDS, k=long)) for _ in range(documents))
    (tmp_path / "text.txt").write_text("\n\n".join(f"{text}." for text in texts))
    words = [*TINY, f"data.path={tmp_path}/text.txt", f"run.dir={tmp_path}/run", "train.steps=2"]
    output = pretrain(*words, "tokenizer.vocab_size=50", "train.eval_every=1")
    held = read_held_out(tmp_path / "run")
    assert held is not None
    assert held.validates is enough
    assert (f"valid: {held.describe()}" in output) is enough
    assert ("too few for a validation" in output) is not enough
    assert ("  valid  mlm" in output) is enough
    assert ("  sample  mlm" in output) is not enough
    page = str(make_blocks(find_subject([tmp_path / "run"])))
    assert held.describe() in page
    assert ("too few for a validation" in page) is not enough
    card = make_card(tmp_path / "run", {"recipe": "bert"})
    assert held.describe() in card
    assert ("loss/mlm" in card) is enough


@pytest.mark.parametrize(
    ("settings", "documents", "fix"),
    [
        ({}, 30, FIX),
        ({}, 1, "sed G a.txt > a-lines.txt  # then data.path=a-lines.txt: each line is a document"),
        ({"path": "a"}, 1, f"{OTHER}, or blank lines"),
        ({"valid_path": "few.txt"}, 30, "data.valid_path=<more text>"),
        ({"streaming": True}, 30, OTHER),
    ],
)
def test_the_fix_gives_more_held_out_text(
    settings: dict[str, Any], documents: int, fix: str
) -> None:
    data = SimpleNamespace(**{"path": "a.txt", "valid_path": None, "streaming": False, **settings})
    found = find_fix(data, documents)
    assert found.startswith(fix)
    assert ("valid_share" in found) is (fix == FIX)
    assert HeldText(1, 1).explain(found).endswith(f"fix: {spell_fix(found)}")


def test_tokens_hold_out_more_when_they_are_written_again(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a b c\n\n" * 9)
    words = ["tokenize", f"data.path={tmp_path / 'text.txt'}", "tokenizer=char"]
    command = [*words, "data.valid_share=0", f"out={tmp_path / 'tokens'}"]
    output = CliRunner().invoke(make_app(), command).output
    assert "valid: nothing, data.valid_share=0" in output
    data = SimpleNamespace(path=str(tmp_path / "tokens"), valid_path=None, streaming=False)
    assert find_fix(data, 9).endswith("for plmctl tokenize again")


def test_what_a_run_without_held_out_text_says(tmp_path: Path) -> None:
    assert "no validation" in HeldText(0, 0).explain()
    assert "1 document, 1 token of text:" in HeldText(1, 1).explain()
    assert HeldText(2, ENOUGH).explain() == "valid: 2 documents, 2,000 tokens of text"
    folder = fabricated.run(tmp_path / "old")  # of a version that did not say it
    assert read_held_out(folder) is None
    assert "held-out" not in str(make_blocks(find_subject([folder]))[0])
