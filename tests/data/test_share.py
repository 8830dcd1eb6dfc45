"""A share of what there is to train on: the first documents of a corpus, chosen examples of a
task.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from plmctl.config.command import perform
from plmctl.config.compose import compose
from plmctl.config.texts import Texts
from plmctl.core.errors import UsageError
from plmctl.data.shards import Shards
from plmctl.inputs.corpus import open_corpus
from plmctl.tasks.inference import take_share
from plmctl.tasks.record import Example


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 documents with a mark in each third one."""
    place = tmp_path_factory.mktemp("share")
    lines = []
    for n in range(40):
        text = " ".join(f"w{(n * 7 + k) % 13}" for k in range(3 + n % 5)) + "."
        marks = '[{"start": 0, "end": 2, "id": 1}]' if n % 3 == 0 else "[]"
        lines.append(f'{{"text": "{text}", "entity": {marks}}}')
    (place / "t.jsonl").write_text("\n".join(lines))
    words = [
        f"data.path={place / 't.jsonl'}",
        "data.spans=[entity]",
        "data.valid_share=0.1",
        "tokenizer=char",
        "tokenizer.vocab_size=40",
        f"out={place / 'tokens'}",
    ]
    perform(compose("tokenize", None, words))
    return place / "tokens"


@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 0.999])
def test_the_first_documents_that_have_so_many_tokens(tokens: Path, share: float) -> None:
    whole = Shards.open(tokens)
    part = whole.first(share)
    ends = [int(whole.sentences[d]) for d in whole.documents]
    documents = next(d for d, end in enumerate(ends) if end >= share * len(whole.ids))
    assert len(part.ids) == ends[documents]
    assert np.array_equal(part.ids, whole.ids[: len(part.ids)])
    assert np.array_equal(part.documents, whole.documents[: documents + 1])
    assert (part.sentences[-1], part.documents[-1]) == (len(part.ids), len(part.sentences) - 1)
    assert all(len(count) == documents for count in part.counts.values())
    assert all(len(track) == len(part.ids) for track in part.tracks.values())
    marks = [int(start) for start in whole.spans["entity"].start if start < len(part.ids)]
    assert part.spans["entity"].start.tolist() == marks
    assert (part.fingerprint == whole.fingerprint) == (len(part.ids) == len(whole.ids))
    assert len(whole.ids) == ends[-1]  # is as it was


def test_all_of_it_is_itself(tokens: Path) -> None:
    whole = Shards.open(tokens)
    assert whole.first(1.0) is whole


def test_training_reads_a_share_and_validation_all(tokens: Path) -> None:
    words = [f"data.path={tokens}", "format.max_length=16", "train.share=0.3"]
    corpus = open_corpus(Texts.of(compose("pretrain", "roberta", words)))
    assert len(corpus.train["text"]["text"].ids) < 0.5 * len(Shards.open(tokens).ids)
    assert len(corpus.valid["text"]["text"].ids) == len(Shards.open(tokens, "valid").ids)
    for wrong in ("0", "1.5"):
        with pytest.raises(UsageError, match="more than 0, at most 1"):
            compose("pretrain", "roberta", [f"train.share={wrong}"])


def test_examples_of_a_smaller_share_are_among_those_of_a_larger_one() -> None:
    examples = [Example(id=str(n), fields={"text": str(n)}, label=str(n % 2)) for n in range(100)]
    tenth, half = take_share(examples, 0.1), take_share(examples, 0.5)
    assert (len(tenth), len(half), len(take_share(examples, 0.0001))) == (10, 50, 1)
    numbers = [[int(each.id) for each in part] for part in (tenth, half)]
    assert all(part == sorted(part) for part in numbers)
    assert set(numbers[0]) < set(numbers[1])
    assert numbers[0] != list(range(10))  # not only the first, which files often sort
    assert take_share(examples, 1.0) is examples
