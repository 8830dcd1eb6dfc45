"""Rows, labels, losses and predictions of the task families, with a toy tokenizer and heads that
are told what to answer.
"""

import numpy as np
import pytest
import torch

from plmctl.core.batch import IGNORE
from plmctl.core.errors import DataError
from plmctl.tasks import batches
from plmctl.tasks.classification import Classification
from plmctl.tasks.layouts.words import windows, word_pieces
from plmctl.tasks.readers.tables import Table
from plmctl.tasks.record import Example
from plmctl.tasks.regression import Regression
from plmctl.tasks.tagging import Tagging
from plmctl.use.predict import show_metric

READER = Table(splits={"train": ["train.tsv"]})
COLUMNS = {"text": "text", "label": "label"}
TEXTS = ["A cat sat.", "Dogs bark loudly at night!", "Why?", "Never say never again"]


def _classification(**settings):
    return Classification(
        name="toy", reader=READER, columns=COLUMNS, max_length=16, metrics=["accuracy"], **settings
    )


def _examples(labels):
    return [
        Example(str(n), {"text": text}, label, f"x.tsv:{n}")
        for n, (text, label) in enumerate(zip(TEXTS, labels, strict=True))
    ]


class Told(torch.nn.Module):
    """A model whose state at every token is its id, one-hot in the first coordinates."""

    def __init__(self, **heads):
        super().__init__()
        self.heads = torch.nn.ModuleDict(heads)

    def forward(self, batch, state=None, record=frozenset()):
        from plmctl.models.base import Hidden

        return Hidden(torch.nn.functional.one_hot(batch.text.ids.long(), 500).double())


def test_labels_are_learnt_from_training_in_natural_order():
    task = _classification()
    task.fit_labels(_examples(["10", "9", "b", "a"]))
    assert task.names == ["9", "10", "a", "b"]


def test_a_label_never_seen_names_place_and_nearest(toy):
    task = _classification()
    task.fit_labels(_examples(["good", "bad", "good", "bad"]))
    with pytest.raises(
        DataError,
        match=r"x.tsv:2: label 'goood' is none of task.label_names \(did you mean 'good'\?\)",
    ):
        task.encode(_examples(["good", "bad", "goood", "bad"]), toy)
    with pytest.raises(DataError, match="only one label"):
        _classification().fit_labels(_examples(["x"] * 4))


def test_loss_is_a_sum_over_examples_in_any_batching(toy):
    task = _classification()
    examples = _examples(["a", "b", "a", "b"])
    task.fit_labels(examples)
    rows = task.encode(examples, toy)
    torch.manual_seed(0)
    model = Told(**{"class": torch.nn.Linear(500, 2).double()})
    whole = batches.collate(rows, np.arange(4))
    parts = [batches.collate(rows, np.array(index)) for index in ([2, 0], [3, 1])]
    expected = task(model, whole).terms["class"].total
    assert sum(task(model, part).terms["class"].total for part in parts).item() == pytest.approx(
        expected.item(), abs=1e-5
    )
    assert task.counts(whole) == {"class": 4}
    # padded to the longest of the batch only
    assert parts[0].text.ids.shape[1] == max(rows.seqs["text"].length[[2, 0]])
    assert parts[0].anchors.tolist() == [[0, 0], [1, 0]]
    # [CLS] is id 2
    logits = model.heads["class"](
        torch.nn.functional.one_hot(torch.full((4,), 2), 500).double()
    ).float()
    gold = torch.tensor([0, 1, 0, 1])
    assert expected.item() == pytest.approx(
        torch.nn.functional.cross_entropy(logits, gold, reduction="sum").item(), abs=1e-5
    )


def test_pooling_goes_through_the_pooler_and_the_last_token_of_a_decoder(toy, gpt_toy):
    examples = _examples(["a", "b", "a", "b"])
    task = _classification(pooling="last")
    task.fit_labels(examples)
    rows = task.encode(examples, gpt_toy)
    assert rows.anchors[:, 1].tolist() == (rows.seqs["text"].length - 1).tolist()
    model = Told(**{"pooler": torch.nn.Threshold(2.0, -1.0), "class": torch.nn.Identity()})
    assert (task.logits(model, batches.collate(rows, np.arange(2)))["class"] == -1.0).all()


def test_classification_predictions(toy):
    task = _classification(label_names=["no", "yes"], positive="yes")
    examples = _examples(["yes", "no", "yes", "no"])
    logits = {"class": np.array([[0, 1], [1, 0], [2, 0], [0, 0]], dtype=np.float32)}
    found = task.predict(logits, task.encode(examples, toy), examples)
    assert [(p["id"], p["gold"], p["guess"]) for p in found] == [
        ("0", "yes", "yes"),
        ("1", "no", "no"),
        ("2", "yes", "no"),
        ("3", "no", "no"),
    ]
    assert found[0]["probabilities"]["yes"] == pytest.approx(1 / (1 + np.exp(-1)))
    assert task.score(found) == {"accuracy": 0.75, "majority": 0.5}
    task.metrics = ["macro_f1"]  # no accuracy: a constant answer is scored by that
    assert task.score(found) == {
        "macro_f1": pytest.approx((0.8 + 2 / 3) / 2),
        "constant_macro_f1": pytest.approx(1 / 3),
    }


def test_regression(toy):
    task = Regression(
        name="toy", reader=READER, columns=COLUMNS, max_length=16, metrics=["pearson", "spearman"]
    )
    examples = _examples(["1.5", "2", "0", "5"])
    task.fit_labels(examples)
    batch = batches.collate(task.encode(examples, toy), np.array([3, 0]))
    assert task.loss({"score": torch.tensor([4.0, 1.0])}, batch).terms["score"].total.item() == 1.25
    found = task.predict(
        {"score": np.array([1.0, 2.0, 0.5, 9.0])}, task.encode(examples, toy), examples
    )
    assert task.score(found)["spearman"] == pytest.approx(1.0)
    with pytest.raises(DataError, match=r"x.tsv:1: the score 'high' is not a number"):
        task.fit_labels(_examples(["1", "high", "2", "nan"]))
    for absurd in ("1e295", "-3e16", "9" * 40):
        with pytest.raises(DataError, match=rf"x.tsv:0: the score '{absurd}' is too large: at mo"):
            task.fit_labels(_examples([absurd, "1", "2", "3"]))
    assert task.gold_of(_examples(["-1e15", "1", "2", "3"])[0]) == -1e15


def _tagging(**settings):
    return Tagging(name="toy", reader=READER, columns={}, max_length=8, metrics=["f1"], **settings)


SENTENCE = ["Johanna", "saw", "Carl", "Friedrich", "Gauss", "."]
TAGS = ["B-PER", "O", "B-PER", "I-PER", "I-PER", "O"]


def test_tags_stand_on_first_pieces_and_no_word_is_lost(toy):
    task = _tagging()
    examples = [Example("0", {"words": SENTENCE}, TAGS), Example("1", {"words": ["Hi"]}, ["O"])]
    task.fit_labels(examples)
    assert task.names == ["O", "B-PER", "I-PER"]
    rows = task.encode(examples, toy)
    # 6 tokens a window: Johanna(3) saw Carl(2) | Friedrich(3) Gauss(2) .
    assert rows.values["example"].tolist() == [0, 0, 1]
    target = rows.targets["tag"]
    assert target[0].tolist() == [IGNORE, 1, IGNORE, IGNORE, 0, 1, IGNORE, IGNORE]
    assert (target != IGNORE).sum() == 7
    logits = np.zeros((*target.shape, 3), dtype=np.float32)
    np.put_along_axis(logits, np.maximum(target, 0)[..., None], 1.0, axis=2)
    found = task.predict({"tag": logits}, rows, examples)
    assert [p["guess"] for p in found] == [TAGS, ["O"]]
    # B-PER everywhere: 1 of 7 right, of 2
    assert task.score(found) == {"f1": 1.0, "constant_f1": pytest.approx(2 / 9)}
    assert show_metric("constant_f1") == "best f1 of one answer to all here"


def test_every_prefix_of_every_type_is_a_tag():
    task = _tagging()
    task.fit_labels(
        [Example("0", {"words": ["a", "b", "c", "d"]}, ["B-PER", "I-PER", "B-LOC", "O"])]
    )
    assert task.names == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    task.fit_labels([Example("0", {"words": ["a"]}, ["I-LOC"])])
    with pytest.raises(DataError, match="'I-LOCK' was never seen in training"):
        task.fit_labels([Example("0", {"words": ["a"]}, ["I-LOCK"])])


def test_tag_loss_counts_words(toy):
    task = _tagging()
    examples = [Example("0", {"words": SENTENCE}, TAGS)]
    task.fit_labels(examples)
    batch = batches.collate(task.encode(examples, toy), np.arange(2))
    assert task.counts(batch) == {"tag": 6}
    out = task.loss({"tag": torch.zeros(*batch.text.ids.shape, 3)}, batch)
    assert out.terms["tag"].total.item() == pytest.approx(6 * np.log(3), abs=1e-5)


def test_a_word_longer_than_a_row_keeps_its_first_pieces_and_is_counted(toy):
    rows = _tagging().encode([Example("0", {"words": ["x" * 30, "y"]})], toy)
    assert rows.values["cut"].sum() == 10 - 6
    assert len(rows.spans["word"]) == 2


def test_windows_cover_every_word_once():
    assert windows([2, 2, 2, 5, 1, 1], 5) == [(0, 2), (2, 3), (3, 4), (4, 6)]
    assert windows([1], 5) == [(0, 1)]


def test_pieces_that_span_words_are_tokenized_word_by_word(toy):
    assert [len(p) for p in word_pieces(SENTENCE, toy, joiner=" ")] == [3, 1, 2, 3, 2, 1]
    # the toy's pieces of three characters swallow all words
    found = word_pieces(["吴", "重", "阳"], toy, joiner="")
    assert found == [toy.encode("吴"), toy.encode("重"), toy.encode("阳")]
    assert word_pieces(["a", "\u3000", "b"], toy, joiner=" ")[1] == [toy.vocab.unk]


def test_lengths_are_bucketed_the_same_every_time_and_every_row_once(toy):
    length = np.random.default_rng(0).integers(3, 60, 101)
    plan = batches.plan(length, batch_size=8, seed=3, epoch=1)
    assert sorted(np.concatenate(plan).tolist()) == list(range(101))
    assert all(
        np.array_equal(a, b)
        for a, b in zip(plan, batches.plan(length, batch_size=8, seed=3, epoch=1), strict=True)
    )
    assert not np.array_equal(plan[0], batches.plan(length, batch_size=8, seed=3, epoch=2)[0])
    assert {len(index) for index in plan} == {8, 5}
    padded = sum(int(length[index].max()) * len(index) for index in plan)
    assert padded < 1.1 * length.sum()
