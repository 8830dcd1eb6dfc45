"""Coreference: both layouts and their mistakes, segments, spans that are kept, the loss by all
assignments of antecedents, and a run from documents to clusters.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plmctl.config import compose as config
from plmctl.config.build import build
from plmctl.core.batch import IGNORE
from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError, DataError
from plmctl.heads.span_rank import SpanRank, bucket
from plmctl.models.base import Hidden
from plmctl.tasks import batches
from plmctl.tasks.answers.coreference import (
    AntecedentRanking,
    DocumentSpans,
    choose_spans,
    find_spans,
    join_links,
    link,
    measure,
    rank,
)
from plmctl.tasks.layouts.coreference import SegmentRun, cut_document
from plmctl.tasks.readers.coreference import CoreferenceFiles
from plmctl.tasks.record import Example
from tests.command import plmctl
from tests.tasks.coreference_documents import CONLL, RECORD, write_stories

SPLITS = {"train": ["*train*"], "dev": ["*dev*"], "test": ["*test*"]}
COLUMNS = {"words": 3, "speaker": 9, "clusters": -1}


def read(folder: Path, content: str, name: str = "train.v4_gold_conll") -> list[Example]:
    (folder / name).write_text(content)
    return CoreferenceFiles(splits=SPLITS).read(folder, name.split(".")[0], COLUMNS)


def make(path: object, *words: str) -> Any:
    own = ["task=coreference", f"task.path={path}", "checkpoint=null", *words]
    return build(config.compose("finetune", None, own).task, {"pooling": "first"}, path="task")


def test_both_layouts_say_the_same(tmp_path: Path) -> None:
    first, second = read(tmp_path, CONLL)
    (other,) = read(tmp_path, json.dumps(RECORD) + "\n", "dev.jsonl")
    assert first.fields == other.fields
    assert [sorted(own) for own in first.label] == [sorted(own) for own in other.label]
    assert (first.id, second.id) == ("(bc/x/00/x_0000); part 000", "(bc/x/00/x_0000); part 001")
    assert second.label == []
    assert read(tmp_path, '{"sentences": [["a"]]}\n', "test.jsonl")[0].label is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(1|(0)", "(1|0)", r"conll:4: a mention of cluster 0 ends that did not begin"),
        ("1)\n", "-\n", r"conll:4: a mention of cluster 1 begins and does not end"),
        ("(1|(0)", "(1|(0", r"conll:4: a mention of cluster 0 begins and does not end"),
        ("(1|(0)", "(x", r"conll:4: '\(x' in '\(x' is no bracket"),
        ("(1|(0)", "(1|(0)|(0)", r"conll:1: the mention \(2, 2\) stands twice"),
        ("#end document\n#begin", "#begin", r"conll:10: a document begins before"),
        ("#begin document (bc/x/00/x_0000); part 000\n", "", r"conll:1: a word outside"),
        (
            "VBZ  *)       -  -  -  B2  *  -\n",
            "VBZ\n",
            r"conll:8: no column 9 \(speaker\): found 5",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in CONLL
    with pytest.raises(DataError, match=message):
        read(tmp_path, CONLL.replace(old, new, 1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clusters": [[[0, 6]]]}, r"jsonl:1: the mention \[0, 6\] is not \[first, last\] of 6"),
        ({"clusters": [[[2, 1]]]}, "is not"),
        ({"clusters": [[[1]]]}, "is not"),
        ({"clusters": [[[0, 0]], [[0, 0]]]}, "stands twice"),
        ({"clusters": None}, "no clusters"),
        ({"speakers": [["A"]]}, "1 speakers for 6 words"),
        ({"sentences": [[]]}, "without words"),
        ({"sentences": "a b"}, "sentences"),
    ],
)
def test_what_is_wrong_in_json_is_named(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, json.dumps({**RECORD, **changes}) + "\n", "train.jsonl")


def test_sentences_stay_whole_where_they_fit() -> None:
    sentences = [[[1]] * n for n in (3, 2, 9, 1)]
    found = cut_document(sentences, 5)
    assert [(each.first, each.sentences) for each in found] == [
        (0, [0, 0, 0, 1, 1]),
        (5, [2] * 5),
        (10, [2] * 4 + [3]),
    ]
    (one,) = cut_document([[[1, 2, 3, 4]]], 3)
    assert (one.pieces, one.cut) == ([[1, 2, 3]], 1)


def examples() -> list[Example]:
    fields = {"sentences": RECORD["sentences"], "speakers": ["A1"] * 4 + ["B2"] * 2}
    label = [[(0, 0), (2, 2)], [(2, 3), (4, 4)]]
    long = {"sentences": [["a"] * 5, ["b", "c"]], "speakers": []}
    return [Example("0", fields, label), Example("1", long, [[(0, 3), (6, 6)]])]


def test_rows_say_where_words_and_mentions_are(toy: Any) -> None:
    task = make("x", "task.max_length=8", "task.max_words=3")
    rows = task.encode(examples(), toy)
    # Anna likes her cat has 2 + 2 + 1 + 1 pieces, it sleeps 1 + 2; of at most 6 in a row
    assert rows.values["group"].tolist() == [0, 0, 1, 1]
    words = rows.values["word_places"]
    assert words[0, :4].tolist() == [[1, 2, 0, 0], [3, 4, 0, 1], [5, 5, 0, 2], [6, 6, 0, 3]]
    assert words[1, :3].tolist() == [[1, 1, 1, 4], [2, 3, 1, 5], [-1] * 4]
    text = rows.seqs["text"].ids
    assert text[0].tolist() == [2, *toy.encode("Anna likes her cat"), 3]
    assert text[1, :5].tolist() == [2, *toy.encode("It sleeps"), 3]
    assert rows.values["speakers"][0, :4].tolist() == [1, 1, 1, 1]
    assert rows.values["speakers"][1, :2].tolist() == [2, 2]
    assert rows.values["clusters"][0].tolist() == [[0, 0, 1], [2, 0, 1], [2, 1, 2]]
    assert rows.values["clusters"][1].tolist() == [[0, 0, 2], [-1] * 3, [-1] * 3]
    assert rows.labels["coreference"].tolist() == [0, IGNORE, 0, IGNORE]
    # [0, 3] has four words
    assert task.remarks[0].startswith("1 of 6 mentions are longer than task.max_words=3")


def test_a_run_of_rows_is_drawn_anew_in_every_epoch(toy: Any) -> None:
    sentences = [[f"w{n}", "x"] for n in range(6)]
    document = Example("0", {"sentences": sentences, "speakers": []}, [[(0, 0), (2, 2)]])
    task = make("x", "task.max_length=4", "task.max_rows=2")
    rows = task.encode([document, examples()[1]], toy)
    assert len(rows.key) == 6 + 4
    starts = set()
    noise = task.noise(toy.vocab)
    assert isinstance(noise, SegmentRun)
    for epoch in range(20):
        drawn = partial(noise, draws=Draws(0, epoch))
        batch = batches.collate(rows, np.arange(10), drawn)
        first, second = batch.values["word_places"][:2, 0, 3].tolist()
        assert second == first + 2
        assert batch.labels["coreference"].tolist() == [0, IGNORE, 0, IGNORE]
        assert batch.values["group"].tolist() == [0, 0, 1, 1]
        starts.add(first)
    assert starts == {0, 2, 4, 6, 8}
    assert task.counts(batch) == {"coreference": 2}
    turned = batches.collate(rows, np.array([6, 7, 8, 9, 0, 1, 2, 3, 4, 5]), drawn)
    assert turned.labels["coreference"].tolist() == [0, IGNORE, 0, IGNORE]
    assert task.counts(turned) == {"coreference": 2}, "each document, in whatever order"


def test_spans_are_all_of_one_sentence() -> None:
    words = torch.full((2, 4, 4), -1)
    words[0] = torch.tensor([[1, 2, 0, 0], [3, 3, 0, 1], [4, 6, 1, 2], [7, 7, 1, 3]])
    words[1, :2] = torch.tensor([[1, 1, 1, 4], [2, 2, 2, 5]])
    clusters = torch.zeros(2, 4, 3, dtype=torch.int64)
    clusters[0, 2, 1] = 7
    found = find_spans(words, torch.arange(8).view(2, 4), clusters, 3)
    wanted = []
    for row, count in ((0, 4), (1, 2)):
        for first in range(count):
            for more in range(3):
                last = first + more
                if last < count and words[row, first, 2] == words[row, last, 2]:
                    wanted.append((row, first, more))
    assert found.cell.tolist() == [list(each) for each in wanted]
    place = wanted.index((0, 2, 1))
    assert found.tokens[place].tolist() == [4, 7]
    assert found.words[place].tolist() == [2, 3]
    assert found.cluster.tolist() == [7 * (n == place) for n in range(len(wanted))]
    assert found.speaker[place] == 2


def test_spans_that_cross_are_not_kept() -> None:
    rng = random.Random(0)
    for _ in range(100):
        spans = sorted({(a, a + rng.randrange(4)) for a in (rng.randrange(9) for _ in range(14))})
        order = rng.sample(range(len(spans)), len(spans))
        taken: list[tuple[int, int]] = []
        for number in order:
            a, b = spans[number]
            cross = [(c, d) for c, d in taken if a < c <= b < d or c < a <= d < b]
            if not cross and len(taken) < 5:
                taken.append((a, b))
        found = [spans[n] for n in choose_spans(spans, order, 5)]
        assert found == sorted(taken)


def ranking(seed: int, clusters: list[int]) -> AntecedentRanking:
    """Spans with random scores, each with all spans before it as antecedents."""
    rng = torch.Generator().manual_seed(seed)
    k = len(clusters)
    scores = torch.randn(k, k, generator=rng, dtype=torch.float64)
    before = torch.arange(k) < torch.arange(k)[:, None]
    scores = scores.masked_fill(~before, torch.finfo(torch.float64).min)
    antecedents = torch.arange(k).expand(k, k)
    nothing = torch.zeros(k, 3, dtype=torch.int64)
    spans = DocumentSpans(
        nothing, nothing[:, :2], nothing[:, :2], nothing[:, 0], torch.tensor(clusters)
    )
    return AntecedentRanking(
        spans, antecedents, torch.cat([torch.zeros(k, 1).double(), scores], -1)
    )


@pytest.mark.parametrize("clusters", [[1, 0, 1, 1], [1, 2, 2, 1, 0], [0, 0, 0], [1, 1, 1, 1]])
def test_the_loss_is_the_sum_over_all_assignments(clusters: list[int]) -> None:
    """P(gold) = the sum of the probability of every assignment of antecedents that is right."""
    own = ranking(len(clusters), clusters)
    total = 0.0
    for choice in itertools.product(*(range(-1, i) for i in range(len(clusters)))):
        p, right = 1.0, True
        for i, j in enumerate(choice):
            scores = [0.0, *own.scores[i, 1 : i + 1].tolist()]
            p *= math.exp(scores[j + 1]) / sum(map(math.exp, scores))
            gold = [a for a in range(i) if clusters[i] and clusters[a] == clusters[i]]
            right &= j in (gold or [-1])
        total += p * right
    assert measure(own).item() == pytest.approx(-math.log(total), rel=1e-12)


def head_of(width: int = 4) -> SpanRank:
    torch.manual_seed(0)
    return SpanRank(width=width, hidden=6, features=3, dropout=0.5).double().eval()


def test_scores_are_those_of_a_loop() -> None:
    head, states = head_of(), torch.randn(2, 7, 4).double()
    words = torch.full((2, 3, 4), -1)
    words[0] = torch.tensor([[1, 2, 0, 0], [3, 3, 0, 1], [4, 5, 0, 2]])
    words[1, :2] = torch.tensor([[1, 3, 1, 3], [4, 4, 1, 4]])
    spans = find_spans(words, torch.tensor([[1, 1, 0], [1, 2, 0]]), None, 2)
    found = rank(head, states, spans, kept=4, most_antecedents=2)

    def vector(n: int) -> torch.Tensor:
        row, _, more = spans.cell[n].tolist()
        first, last = spans.tokens[n].tolist()
        x = states[row, first : last + 1]
        share = torch.stack([head.attention(t)[0] for t in x]).softmax(0)
        return torch.cat([x[0], x[-1], share @ x, head.width.weight[more + 1]])

    def mention(n: int) -> float:
        width = head.prior.weight[spans.cell[n, 2] + 1]
        return (head.mention(vector(n)) + head.of_width(width)).item()

    by_score = sorted(range(len(spans)), key=lambda n: -mention(n))
    kept = choose_spans(spans.words.tolist(), by_score, 4)
    assert found.spans.cell.tolist() == [spans.cell[n].tolist() for n in kept]
    for i, n in enumerate(kept):
        rough = {
            j: mention(n) + mention(m) + (head.coarse(vector(n)) @ vector(m)).item()
            for j, m in enumerate(kept[:i])
        }
        best = sorted(rough, key=lambda j: -rough[j])[:2]
        for j in range(len(kept)):
            where = (found.antecedents[i] == j).nonzero()
            score = found.scores[i, 1 + where[0, 0]].item() if len(where) else -math.inf
            if j not in best:
                assert score < -1e300
                continue
            m = kept[j]
            speakers = spans.speaker[n].item(), spans.speaker[m].item()
            same = 0 if 0 in speakers else 2 if speakers[0] == speakers[1] else 1
            between = spans.cell[n, 0] - spans.cell[m, 0]
            features = torch.cat(
                [head.speaker.weight[same], head.distance.weight[i - j], head.rows.weight[between]]
            )
            a, b = vector(n), vector(m)
            wanted = rough[j] + head.pair(torch.cat([a, b, a * b, features])).item()
            assert score == pytest.approx(wanted, rel=1e-9)
    assert found.scores[:, 0].tolist() == [0.0] * len(kept)


def test_buckets() -> None:
    counts = torch.tensor([0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 63, 64, 900])
    assert bucket(counts).tolist() == [0, 1, 2, 3, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9]


def test_links_become_clusters() -> None:
    a, b, c, d, e = [(n, n + 1) for n in range(5)]
    found = join_links([(b, a), (d, c), (e, d), (c, a)])
    assert found == [[list(mention) for mention in (a, b, c, d, e)]]
    assert join_links([(e, b), (c, a)]) == [[[0, 1], [2, 3]], [[1, 2], [4, 5]]]
    own = ranking(3, [1, 1, 1])
    for span, antecedent in link(own):
        row = own.scores[span]
        assert row[1 + antecedent] == row.max() > 0


class Fixed(torch.nn.Module):
    """A model whose states are drawn once for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = torch.nn.ModuleDict({"coreference": head_of()})
        self.table = torch.nn.Embedding(500, 4).double()

    def forward(self, batch: Any, state: Any = None, record: Any = frozenset()) -> Hidden:
        return Hidden(self.table(batch.text.ids))


def test_documents_of_a_batch_are_apart(toy: Any) -> None:
    task, model = make("x", "task.max_length=8", "task.max_words=3"), Fixed()
    rows = task.encode(examples(), toy)
    whole = task(model, batches.collate(rows, np.arange(4)))
    parts = [task(model, batches.collate(rows, np.arange(n, n + 2))) for n in (0, 2)]
    total = whole.terms["coreference"].total
    assert total.item() == pytest.approx(
        sum(part.terms["coreference"].total.item() for part in parts), rel=1e-5
    )
    total.backward()
    grads = [each.grad for each in model.heads.parameters()]
    assert all(grad is not None and grad.isfinite().all() for grad in grads)
    logits = {
        k: v.detach().numpy()
        for k, v in task.logits(model, batches.collate(rows, np.arange(4))).items()
    }
    first, second = task.predict(logits, rows, examples())
    assert first["gold"] == [[[0, 0], [2, 2]], [[2, 3], [4, 4]]]
    for own, words in ((first, 6), (second, 7)):
        assert all(0 <= a <= b < words and b - a < 3 for c in own["guess"] for a, b in c)
        assert all(len(cluster) > 1 for cluster in own["guess"])
    flat = ["Anna", "likes", "her", "cat", "It", "sleeps"]
    assert first["texts"] == [
        [" ".join(flat[a : b + 1]) for a, b in cluster] for cluster in first["guess"]
    ]


def test_documents_that_keep_too_few_spans_are_said(toy: Any) -> None:
    """0.4 spans for each of six and seven words: two, of which mentions are hardly both."""
    task = make("x", "task.max_length=8", "task.max_words=3")
    task.encode(examples(), toy)
    assert task._keep(7) == 2
    (remark,) = [line for line in task.remarks if "short" in line]
    assert remark.startswith("2 of 2 documents are so short that task.kept=0.4")
    assert remark.endswith("task.kept=1 keeps more")
    more = make("x", "task.max_length=8", "task.max_words=3", "task.kept=1")
    more.encode(examples(), toy)
    assert not [line for line in more.remarks if "short" in line]


def test_numbers_of_half_the_width_are_scored(toy: Any) -> None:
    task, model = make("x", "task.max_length=8", "task.max_words=3"), Fixed().float()
    batch = batches.collate(task.encode(examples(), toy), np.arange(4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = task(model, batch).terms["coreference"].total
    wanted = task(model, batch).terms["coreference"].total
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(wanted.item(), rel=0.1)


def test_parts_of_a_document_stay_on_one_side(tmp_path: Path) -> None:
    first, second = read(tmp_path, CONLL)
    assert make("x").unit(first) == make("x").unit(second)


def test_what_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"task.metrics=.*of conll_f1"):
        make("x", "task.metrics=[f1]")
    with pytest.raises(ConfigError, match="max_words"):
        make("x", "task.max_words=0")
    single = [Example("0", {"sentences": [["a"]], "speakers": []}, [[(0, 0)]], "x:1")]
    with pytest.raises(DataError, match="x:1: no cluster has two mentions"):
        make("x").fit_labels(single)
    node = config.compose("finetune", None, ["task=coreference", "task.path=x", "checkpoint=null"])
    with pytest.raises(ConfigError, match="causal"):
        build(node.task, {"sees_later": False}, path="task")


@pytest.mark.slow
def test_long_documents_are_learned(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(write_stories(48, 0))
    (tmp_path / "dev.jsonl").write_text(write_stories(12, 1))
    run = tmp_path / "run"
    small = ["size=tiny", "tokenizer=word", "tokenizer.vocab_size=64", "train.precision=fp32"]
    own = [
        "task.max_length=8",
        "task.max_words=2",
        "heads.coreference.hidden=32",
        "optim.scales={}",
    ]
    plmctl("finetune", "task=coreference", f"task.path={tmp_path}", "checkpoint=null", *small, *own,
           "optim.lr=2e-3", "train.epochs=6", f"run.dir={run}")  # fmt: skip
    found = json.loads(plmctl("eval", f"checkpoint={run}", "--json"))["metrics"]["dev"]
    assert found["conll_f1"] > 0.6
    (tmp_path / "new.txt").write_text("Anna is here she sings\n")
    plmctl("eval", f"checkpoint={run}", f"input={tmp_path}/new.txt", f"out={tmp_path}/o.jsonl")
    (row,) = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert "guess" in row
