"""Minimal pairs: scores of sentences as literal loops, ties, groups, and files."""

from __future__ import annotations

import csv
import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq, Targets
from plmctl.core.errors import ConfigError, DataError, UsageError
from plmctl.probes.base import Opened
from plmctl.probes.minimal_pairs import MinimalPairs
from plmctl.storage.atomic import is_stream, refuse_existing
from plmctl.use.likelihood import Likelihood, WordScoring, choose_way, find_ways, make_scoring
from plmctl.use.pairs import Pair, ScoredPairs, describe_intervals, find_ties
from tests.tasks.conftest import SIZE, Toy

TINY = ["size=tiny", "size.width=16", "size.inner_width=32", "size.num_layers=2"]
TEXTS = ["the souvenirs were sold", "she was", "he", "the souvenirs was sold", "你好 whatever"]


def make(recipe: str, vocab, *words: str):
    """A model with random weights in float64, so that loops agree to many digits."""
    config = compose("pretrain", recipe, [*TINY, "format.max_length=32", *words])
    torch.manual_seed(1)
    model = build_model(config, vocab_size=vocab.size, vocab=vocab).double().eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return model


def score(model, way, vocab, ids, tokens=64, segment=0):
    reading = make_scoring(way, model, find_ways(model, vocab)[way], Toy(vocab), segment)
    with torch.no_grad():
        return Likelihood(model, reading, torch.device("cpu"), tokens).score(ids)


def log_softmax(model, head, ids, place, **seqs):
    """[V] of one place of one row, alone."""
    seq = Seq(torch.tensor([ids]), torch.tensor([len(ids)]), {})
    read = seqs or {"text": seq.with_tracks(segment=torch.zeros(1, len(ids), dtype=torch.int64))}
    with torch.no_grad():
        states = model(Batch(torch.arange(1), read)).last[0, place]
        return model.heads[head](states[None])[0].log_softmax(-1)


def test_from_left_to_right_as_a_loop(gpt_toy) -> None:
    model, vocab = make("gpt2", gpt_toy.vocab), gpt_toy.vocab
    sentences = gpt_toy.encode_batch(TEXTS)
    expected = [
        sum(
            float(log_softmax(model, "clm", [vocab.bos, *ids[:t]], t)[token])
            for t, token in enumerate(ids)
        )
        for ids in sentences
    ]
    assert score(model, "next", vocab, sentences) == pytest.approx(expected, abs=1e-9)
    alone = [
        sum(float(log_softmax(model, "clm", ids[:t], t - 1)[ids[t]]) for t in range(1, len(ids)))
        for ids in sentences
    ]
    assert score(model, "bare", vocab, sentences) == pytest.approx(alone, abs=1e-9)


def test_from_left_to_right_by_a_query_stream_as_a_loop(toy) -> None:
    vocab = replace(toy.vocab, single=("A", "sep", "cls"))
    model, sentences = make("xlnet", vocab), toy.encode_batch(TEXTS)
    expected = []
    for ids in sentences:
        total, order = 0.0, torch.tensor([[*range(1, len(ids) + 1), 0, 0]])
        for t, token in enumerate(ids):  # the token itself and later ones are not known
            unknown = [vocab.unk] * (len(ids) - t)
            row = torch.tensor([[*ids[:t], *unknown, vocab.sep, vocab.cls]])
            tracks = {"segment": torch.zeros_like(row), "order": order}
            seq = Seq(row, torch.tensor([row.shape[1]]), tracks)
            asked = {"plm": Targets(torch.tensor([t]), torch.tensor([token]), 1)}
            with torch.no_grad():
                query = model(Batch(torch.arange(1), {"text": seq}, asked)).streams["query"]
                total += float(model.heads["plm"](query)[0].log_softmax(-1)[token])
        expected.append(total)
    assert score(model, "order", vocab, sentences) == pytest.approx(expected, abs=1e-9)


def test_each_token_hidden_in_turn_as_a_loop(toy) -> None:
    model, vocab = make("bert", toy.vocab), toy.vocab
    sentences = toy.encode_batch(TEXTS)
    expected = []
    for ids in sentences:
        total = 0.0
        for t, token in enumerate(ids):
            row = [vocab.cls, *ids[:t], vocab.mask, *ids[t + 1 :], vocab.sep]
            total += float(log_softmax(model, "mlm", row, t + 1)[token])
        expected.append(total)
    found = score(model, "masks", vocab, sentences)
    assert found == pytest.approx(expected, abs=1e-9)
    # padding, batches and neighbours change nothing
    assert score(model, "masks", vocab, sentences[::-1], tokens=1)[::-1] == pytest.approx(found)


def test_later_pieces_of_a_word_are_hidden(toy) -> None:
    starts = np.zeros(SIZE, bool)
    starts[[10, 20, 30]] = True
    vocab = replace(toy.vocab, word_start=starts)
    ids = [10, 11, 12, 20, 30, 31]  # three pieces, one, two
    reading = WordScoring(None, Toy(vocab))
    hidden = [
        [place - 1 for place, token in enumerate(row.ids) if token == vocab.mask]
        for row in reading.rows(ids)
    ]
    assert hidden == [[0, 1, 2], [1, 2], [2], [3], [4, 5], [5]]
    assert [(row.places[0] - 1, row.numbers[0]) for row in reading.rows(ids)] == [
        (n, n) for n in range(6)
    ]


def test_a_pair_that_differs_in_one_token_reads_the_common_row_once(toy) -> None:
    model, read = make("bert", toy.vocab), []
    embed = model.backbone.embed
    model.backbone.embed = lambda batch: read.append(len(batch.key)) or embed(batch)
    score(model, "masks", toy.vocab, [[10, 11, 12], [10, 99, 12]])
    assert sum(read) == 2 * 3 - 1


@pytest.mark.parametrize("recipe", ["electra", "deberta_v3"])
def test_what_a_discriminator_finds_replaced(toy, recipe) -> None:
    model = make(recipe, toy.vocab)
    head = find_ways(model, toy.vocab)["replaced"]
    (ids,) = toy.encode_batch(TEXTS[:1])
    row = torch.tensor([[toy.vocab.cls, *ids, toy.vocab.sep]])
    seq = Seq(row, torch.tensor([row.shape[1]]), {"segment": torch.zeros_like(row)})
    with torch.no_grad():
        logits = model.heads[head](model(Batch(torch.arange(1), {"text": seq})).last)[0, 1:-1]
    expected = float((1 - logits.sigmoid()).log().sum())
    assert score(model, "replaced", toy.vocab, [ids])[0] == pytest.approx(expected)


def test_what_a_decoder_writes_after_a_mask(toy) -> None:
    model, vocab = make("bart", toy.vocab), toy.vocab
    (ids,) = toy.encode_batch(TEXTS[:1])

    def seq(tokens):
        return Seq(torch.tensor([tokens]), torch.tensor([len(tokens)]), {})

    source, total = seq([vocab.cls, vocab.mask, vocab.sep]), 0.0
    head = find_ways(model, vocab)["written"]
    for t, token in enumerate(ids):  # later tokens of the target are not known
        target = seq([vocab.cls, *ids[:t], vocab.unk])
        values = log_softmax(model, head, [], t + 1, source=source, target=target)
        total += float(values[token])
    assert score(model, "written", vocab, [ids])[0] == pytest.approx(total, abs=1e-9)


@pytest.mark.parametrize(("segment", "ahead"), [(2, False), (3, True), (5, False)])
def test_a_mode_of_unilm_sees_one_side(toy, segment, ahead) -> None:
    model, sentences = make("unilm", toy.vocab), toy.encode_batch(TEXTS)
    vocab, expected = toy.vocab, []
    for ids in sentences:
        total, row = 0.0, [vocab.cls, *ids, vocab.sep]
        for t, token in enumerate(ids, start=1):  # what the mode does not see is not there
            known = (
                [vocab.unk] * t + [vocab.mask] + row[t + 1 :] if ahead else [*row[:t], vocab.mask]
            )
            tracks = {"segment": torch.full((1, len(known)), segment)}
            seq = Seq(torch.tensor([known]), torch.tensor([len(known)]), tracks)
            total += float(log_softmax(model, "mlm", known, t, text=seq)[token])
        expected.append(total)
    found = score(model, "masks", vocab, sentences, segment=segment)
    assert found == pytest.approx(expected, abs=1e-9)


def test_two_directions_as_loops(toy) -> None:
    words = ["model=two_way", "objective=[bilm]", "format=blocks", "noise=[]", "eval.noise=null"]
    vocab, sentences = toy.vocab, toy.encode_batch(TEXTS)
    model, expected = make("bert", vocab, *words), {"forward": [], "backward": []}
    for ids in sentences:
        row = [vocab.bos, *ids, vocab.eos]
        totals = {"forward": 0.0, "backward": 0.0}
        for t, token in enumerate(ids, start=1):
            sides = {"forward": (row[:t], t - 1), "backward": ([0] * (t + 1) + row[t + 1 :], t + 1)}
            for stream, (known, place) in sides.items():
                seq = Seq(torch.tensor([known]), torch.tensor([len(known)]), {})
                with torch.no_grad():
                    hidden = model(Batch(torch.arange(1), {"text": seq}))
                    logits = model.heads["bilm"](hidden.streams[stream][0, place])
                totals[stream] += float(logits.log_softmax(-1)[token])
        for stream, total in totals.items():
            expected[stream].append(total)
    for way, values in expected.items():
        assert score(model, way, vocab, sentences) == pytest.approx(values, abs=1e-9)
    both = np.add(*expected.values())
    assert score(model, "both", vocab, sentences) == pytest.approx(both, abs=1e-9)
    assert next(iter(find_ways(model, vocab))) == "both"


def test_a_word_that_a_head_does_not_know_is_the_unknown_one(toy) -> None:
    words = ["model=two_way", "objective=[bilm]", "format=blocks", "noise=[]", "eval.noise=null"]
    model = make("bert", toy.vocab, *words, "objective.bilm.words=200")
    ids = [[10, 300, 12], [10, toy.vocab.unk, 12]]
    found = make_scoring("forward", model, "bilm", toy).losses(
        torch.ones(2, 16, dtype=torch.float64), torch.tensor([300, toy.vocab.unk])
    )
    assert found[0] == found[1]
    assert np.isfinite(score(model, "both", toy.vocab, ids)).all()


def test_deberta_is_scored_by_its_mask_decoder(toy) -> None:
    model, vocab = make("deberta", toy.vocab), toy.vocab
    (ids,) = toy.encode_batch(TEXTS[:1])
    total = 0.0
    for t, token in enumerate(ids):
        row = torch.tensor([[vocab.cls, *ids[:t], vocab.mask, *ids[t + 1 :], vocab.sep]])
        seq = Seq(row, torch.tensor([row.shape[1]]), {"segment": torch.zeros_like(row)})
        with torch.no_grad():
            words = model(Batch(torch.arange(1), {"text": seq})).words[0, t + 1]
            total += float(model.heads["mlm"](words).log_softmax(-1)[token])
    assert score(model, "masks", vocab, [ids])[0] == pytest.approx(total, abs=1e-9)


def test_scores_of_tokens_have_the_sum_of_their_sentence(toy, gpt_toy) -> None:
    bare = replace(gpt_toy.vocab, bos=None, eos=None)  # the first token is not scored
    for name, vocab, way in (("bert", toy.vocab, "words"), ("gpt2", bare, "next")):
        model, sentences = make(name, vocab), [[10, 11, 12], [10], [13, 11]]
        reading = make_scoring(way, model, find_ways(model, vocab)[way], Toy(vocab))
        scorer = Likelihood(model, reading, torch.device("cpu"))
        with torch.no_grad():
            tokens, sums = scorer.score_tokens(sentences), scorer.score(sentences)
        assert [len(own) for own in tokens] == [3, 1, 2]
        assert [own.sum() for own in tokens] == pytest.approx(sums)
        assert (tokens[0][0] == 0) == (way == "next")
        assert (tokens[0][1:] < 0).all()


@pytest.mark.parametrize(("ties", "value"), [("strict", 0.0), ("half", 0.5), ("official", 1.0)])
def test_equal_scores_count_by_the_rule(ties, value) -> None:
    part = MinimalPairs(path="x", ties=ties)
    same = np.full(3, -12.5)
    assert part.judge(same, same + 1e-9).tolist() == [value] * 3
    good, bad = np.array([-1.0, -3.0]), np.array([-2.0, -2.0])
    assert part.judge(good, bad).tolist() == [1, 0]
    assert part.judge(bad, good).tolist() == [0, 1]
    with pytest.raises(DataError, match="no finite score"):
        part.judge(np.array([np.nan]), np.array([1.0]))


def test_the_mean_is_over_paradigms() -> None:
    pairs = [Pair("a", "b", name, "P" if name < "c" else "Q") for name in "aaaabbcccc"]
    right = np.array([1, 1, 1, 0, 0, 1, 1, 1, 1, 1.0])
    scores, intervals = MinimalPairs(path="x").summarize(pairs, right)
    assert scores == pytest.approx(
        {"accuracy": (0.75 + 0.5 + 1) / 3, "pairs": 0.8, "P": 4 / 6, "Q": 1.0}
    )
    low, high = stats.binomtest(8, 10).proportion_ci(method="wilson")
    assert intervals["pairs"] == pytest.approx((low, high))
    single = MinimalPairs(path="x").summarize(pairs[:4], right[:4])[1]
    assert single["accuracy"] == single["pairs"]  # of one paradigm
    # by hand: variance of the mean (3/16 / 3 + 1/4 / 1 + 0) / 9, so much as of 5.4 pairs
    z, n = stats.norm.ppf(0.975), 0.75 * 0.25 / ((3 / 16 / 3 + 1 / 4) / 9)
    middle, half = 0.75 + z * z / (2 * n), z * (0.75 * 0.25 / n + z * z / (4 * n * n)) ** 0.5
    ends = [(middle + side * half) / (1 + z * z / n) for side in (-1, 1)]
    assert intervals["accuracy"] == pytest.approx(ends)
    shares = [0.75, 0.5, 1.0]
    low, high = stats.t.interval(0.95, 2, np.mean(shares), stats.sem(shares))
    assert high > 1
    assert describe_intervals(pairs, right) == (
        "for new pairs of these 3 paradigms; with new paradigms, too, accuracy is"
        f" {low:.4f} to 1.0000"
    )
    assert describe_intervals(pairs[:4], right[:4]).startswith("for new pairs of this paradigm;")
    by = MinimalPairs(path="x", by="paradigm").summarize(pairs, right)[0]
    assert {name: by[name] for name in "abc"} == {"a": 0.75, "b": 0.5, "c": 1.0}


SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "minimal_pairs"
PUBLISHED = {"ngram": 0.6124, "lstm": 0.6981, "txl": 0.6963, "gpt2": 0.8302}


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.exists(), reason="no published tables here")
def test_published_accuracies_and_judgements_are_reproduced() -> None:
    part = MinimalPairs(path="x")
    with (SHARED / "blimp_published.tsv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if row["UID"] != "overall"]
    pairs = [
        Pair("a", "b", row["UID"], row["linguistics_term"]) for row in rows for _ in range(1000)
    ]
    for system, mean in PUBLISHED.items():
        right = np.concatenate([np.arange(1000) < 1000 * float(row[system]) - 0.5 for row in rows])
        found, _ = part.summarize(pairs, right.astype(np.float64))
        assert found["accuracy"] == pytest.approx(mean, abs=5e-5)
        assert len(found) == 2 + 13
    with (SHARED / "blimp_human_per_pair.tsv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    right, every = (np.array([float(r[name]) for r in rows]) for name in ("correct", "judgements"))
    assert part.judge(right, every - right).mean() == 195 / 201  # published: 96.4% of all 335


def test_n_grams_stand_beside_the_model(tmp_path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("She reads a book. She sleeps.\nThey read a book. They sleep.\n" * 3)
    pairs = [Pair("They sleep.", "They sleeps.", "u", "t"), Pair("He.", "She.", "u", "t")]
    found = MinimalPairs(path="x", order=2)._count(str(text), pairs)
    assert found.good[0] > found.bad[0]
    assert found.good[1] < found.bad[1]
    assert found.unknown == pytest.approx(1 / 10)  # "He" of ten words
    mean = MinimalPairs(path="x", order=2, normalise=1)._count(str(text), pairs).good
    assert mean == pytest.approx(found.good / np.array([4, 3]))


def test_a_row_of_the_table_that_is_written_has_both_scores() -> None:
    pairs = [Pair("They sleep.", "They sleeps.", "u", "t", "7"), Pair("He.", "She.", "v", "t")]
    scored = ScoredPairs("next", np.array([-1.0, -3.0]), np.array([-2.0, -2.5]), 0.0)
    rows = list(MinimalPairs(path="x")._spell(pairs, scored))
    first: dict[str, object] = {
        "tied": False,
        "right": 1.0,
        "paradigm": "u",
        "id": "7",
        "good": "They sleep.",
        "bad": "They sleeps.",
    }
    assert rows[0] == {**first, "score_good": -1.0, "score_bad": -2.0}
    assert (rows[1]["paradigm"], rows[1]["right"]) == ("v", 0.0)
    both = list(MinimalPairs(path="x")._spell(pairs, scored, scored._replace(good=scored.bad)))
    more = {"score_good": -2.0, "score_bad": -2.0, "tied": True, "right": 0.0}
    assert both[0] == {**rows[0], **{f"ngram_{name}": value for name, value in more.items()}}


def test_a_tie_is_relative_to_the_scores_and_marked() -> None:
    """A good score that is higher by 5e-5 ties at -100, and wins at -10."""
    pairs = [Pair("a", "b", "u", "t"), Pair("c", "d", "u", "t")]
    good, bad = np.array([-100.0, -10.0]), np.array([-100.00005, -10.00005])
    rows = MinimalPairs(path="x")._spell(pairs, ScoredPairs("next", good, bad, 0.0))
    assert [(row["tied"], row["right"]) for row in rows] == [(True, 0.0), (False, 1.0)]


def test_files_of_blimp_and_of_two_columns(tmp_path: Path) -> None:
    first = {"sentence_good": "a b", "sentence_bad": "b a", "UID": "u", "linguistics_term": "t"} | {
        "pairID": 8
    }
    rows = [first, {**first, "sentence_bad": "a b"}, {**first, "sentence_good": " "}]
    with gzip.open(tmp_path / "u.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "own.tsv").write_text("good\tbad\n他来\t来他\n他去\t去他\n", encoding="utf-8")
    pairs, left = MinimalPairs(path=str(tmp_path)).read()
    assert left == 2
    assert pairs == [
        Pair("他来", "来他", "own", "own", "2"),
        Pair("他去", "去他", "own", "own", "3"),
        Pair("a b", "b a", "u", "t", "8"),
    ]
    assert len(MinimalPairs(path=str(tmp_path), pairs=1).read()[0]) == 2


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({}, ConfigError, "a file or a folder of minimal pairs"),
        ({"path": "gone"}, DataError, r"no such file.*\n  fix: task\.path="),
        ({"path": "wrong.tsv"}, DataError, r"wrong\.tsv:2.*no two sentences"),
        ({"path": "."}, DataError, r"other\.tsv: no pairs: .* columns UID, ngram; wanted are"),
        ({"path": "null.jsonl"}, DataError, r"null\.jsonl:1.*good or bad has no text"),
        ({"path": "same.tsv"}, DataError, "no pair of two sentences that differ"),
        ({"path": "x", "normalise": 2.0}, ConfigError, "0 .sum. to 1"),
        ({"path": "x", "pairs": 0}, ConfigError, "1 or more"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, monkeypatch, settings, error, words) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wrong.tsv").write_text("good\tworse\na\tb\n")
    Path("other.tsv").write_text("UID\tngram\na\t0.2\n")
    Path("same.tsv").write_text("good\tbad\na\ta\n")
    Path("null.jsonl").write_text('{"good": "a", "bad": null}\n')
    with pytest.raises(error, match=words):
        MinimalPairs(**settings).read()


@pytest.mark.parametrize(
    ("foreign", "path"),
    [
        ("table.tsv", "*.jsonl"),
        ("notes.jsonl", "[!n]*"),
        ("ab.jsonl", "FILE"),  # no simple pattern
    ],
)
def test_a_foreign_file_is_left_out_by_a_pattern(tmp_path, monkeypatch, foreign, path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.jsonl", "b.jsonl"):
        Path(name).write_text(json.dumps({"good": "x y", "bad": "y x"}))
    own = json.dumps({"x": 1}) if foreign.endswith("jsonl") else "x\n1\n"
    Path(foreign).write_text(own)
    with pytest.raises(DataError, match=f"{foreign}: no pairs: .* columns x;") as error:
        MinimalPairs(path=".").read()
    fix = str(error.value).rpartition("task.path=")[2]
    assert fix.strip("'\"") == path
    if path != "FILE":
        assert len(MinimalPairs(path=path).read()[0]) == 2


def test_pairs_in_an_inner_folder_are_found(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("inner").mkdir()
    Path("inner/a.tsv").write_text("good\tbad\na\tb\n")
    with pytest.raises(DataError, match="no file of pairs here") as error:
        MinimalPairs(path=".").read()
    assert str(error.value).endswith("fix: task.path=inner")


def test_a_model_is_asked_in_a_way_that_it_can_answer() -> None:
    with pytest.raises(UsageError, match="fix: # a checkpoint of pretraining"):
        choose_way({}, None)
    with pytest.raises(ConfigError, match="next: this model has no other way"):
        choose_way({"next": "clm"}, "masks")
    assert choose_way({"masks": "mlm", "words": "mlm"}, None) == ("masks", "mlm")


def test_pairs_of_the_same_tokens_are_counted(toy) -> None:
    """White space between words is no token here: such a pair ties."""
    pairs = [Pair("she  was", "she was", "u", "t"), Pair("he was", "was he", "u", "t")]
    with torch.no_grad():
        found = MinimalPairs(path="x").score_pairs(
            make("bert", toy.vocab), toy, pairs, torch.device("cpu")
        )
    assert (found.same, find_ties(found.good, found.bad).tolist()) == (1, [True, False])


def test_a_segment_that_a_model_does_not_know(toy, gpt_toy) -> None:
    pairs = [Pair("a", "b", "u", "t")]
    for name, tool, words in (("bert", toy, "0 to 1"), ("gpt2", gpt_toy, "0: this model knows")):
        with pytest.raises(ConfigError, match=words):
            MinimalPairs(path="x", segment=2).score_pairs(
                make(name, tool.vocab), tool, pairs, torch.device("cpu")
            )


def test_the_scores_of_pairs_go_into_a_folder_or_a_file(tmp_path: Path) -> None:
    """A study gives a folder, which is there already; a person may give a file."""
    opened = Opened(None, None, "run", out=str(tmp_path))
    assert opened.claim_file("pairs.jsonl") == tmp_path / "pairs.jsonl"
    mine = replace(opened, out=str(tmp_path / "mine.csv"))
    assert mine.claim_file("pairs.jsonl") == tmp_path / "mine.csv"
    (tmp_path / "pairs.jsonl").touch()
    with pytest.raises(UsageError, match=r"pairs.jsonl exists"):
        opened.claim_file("pairs.jsonl")
    again = replace(opened, overwrite=True)
    assert again.claim_file("pairs.jsonl") == tmp_path / "pairs.jsonl"
    with pytest.raises(UsageError, match="is a folder"):
        refuse_existing(tmp_path, overwrite=True)
    assert not is_stream(tmp_path)
    assert is_stream(Path("/dev/null"))
