"""Rows, losses, texts and refusals of the tasks that write, with tiny models."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.artifacts.model_facts import reading
from plmctl.config import compose as config
from plmctl.config.build import build
from plmctl.core.batch import IGNORE
from plmctl.core.errors import ConfigError, DataError
from plmctl.tasks import batches, inference
from plmctl.tasks.layouts import sequences
from plmctl.tasks.record import Example
from plmctl.tasks.scores.metrics import is_larger_better

PAIRS = [("a cat sat here", "eine katze sass"), ("dogs", "hunde bellen laut"), ("why", "warum")]
EXAMPLES = [
    Example(str(n), {"source": s}, (t, "other"), f"x.tsv:{n}") for n, (s, t) in enumerate(PAIRS)
]
SMALL = ["size=tiny", "size.num_layers=1", "train.precision=fp32"]


def _config(*words, task="translation"):
    return config.compose(
        "finetune", None, [f"task={task}", "task.path=x", "checkpoint=null", *SMALL, *words]
    )


def _task(*words, writes="target", **given):
    cfg = _config("task.max_length=12", "task.max_target=8", "search@task.search=greedy", *words)
    return build(cfg.task, {"writes": writes, **given}, path="task")


def _model(task, vocab, *words):
    cfg = _config("position.max_length=32", *words)
    heads = {
        task.facts.head: {
            "_target_": "plmctl.heads.lm.LMHead",
            "tied": True,
            "transform": False,
            "bias": False,
        }
    }
    return build_model(cfg, vocab_size=vocab.size, vocab=vocab, heads=heads, seed=3).double().eval()


@torch.no_grad()
def _predicted(model, task, split):
    return inference.predict_split(model, task, split, batch_size=2, device=torch.device("cpu"))


DECODER = ["model=decoder", "pattern=causal"]
KINDS = {
    "encoder_decoder": (["model=encoder_decoder"], "target"),
    "decoder": (DECODER, "text"),
    "prefix": (["model=encoder", "pattern=prefix"], "text"),
    "unilm": (["model=encoder", "pattern=unilm", "model.embedding.segments=6"], "text"),
}
SEGMENTS = {"unilm": (4, 5)}  # whose numbers say who sees whom


def test_what_a_task_is_told_of_the_model():
    for kind, (words, writes) in KINDS.items():
        told = reading(_config(*words))
        assert (told["writes"], told["directed"], told["segments"]) == (
            writes,
            True,
            SEGMENTS.get(kind, (0, 1)),
        )
    assert not reading(_config("model=encoder", "pattern=full"))["directed"]


def test_lengths_that_fit_the_places():
    row = _task("task.max_length=256", "task.max_target=128", writes="text")
    assert row.lengths.fit(128) == {"max_length": 86, "max_target": 42}
    assert _task("task.max_length=256", "task.max_target=8").lengths.fit(128) == {
        "max_length": 128,
        "max_target": 8,
    }


def test_an_encoder_decoder_is_given_two_sequences(toy):
    sources = sequences.wrap_sources([[10, 11], [12] * 9], toy.vocab, max_length=6)
    rows = sequences.add_targets(sources, [[20], [21, 22]], toy.vocab, max_target=5)
    # [CLS] A [SEP], cut at its end
    assert rows.seqs["source"].ids.tolist() == [[2, 10, 11, 3, 0, 0], [2, 12, 12, 12, 12, 3]]
    assert rows.seqs["target"].ids.tolist() == [[2, 20, 3, 0], [2, 21, 22, 3]]
    assert rows.targets["seq2seq"].tolist() == [[2, 20, 3, IGNORE], [2, 21, 22, 3]]
    assert rows.values["cut"].tolist() == [0, 5]
    assert set(sequences.add_targets(sources, None, toy.vocab, max_target=5).seqs) == {"source"}


def test_a_decoder_is_asked_for_the_second_segment_alone(toy, gpt_toy):
    # [CLS] A [SEP]; bos A eos, one token for all
    for one, first in ((toy, [2, 10, 11, 3]), (gpt_toy, [2, 10, 11, 2])):
        end = one.vocab.eos
        rows = sequences.lay_behind(
            [[10, 11], [12] * 9], [[20], [21] * 9], one.vocab, max_length=6, max_target=3
        )
        text = rows.seqs["text"]
        assert text.ids[0, : text.length[0]].tolist() == [*first, 20, end]
        assert text.ids[1].tolist() == [2, 12, 12, 12, 12, first[-1], 21, 21, end]
        assert text.tracks["segment"].tolist() == [[0, 0, 0, 0, 1, 1, 0, 0, 0], [0] * 6 + [1] * 3]
        assert rows.targets["clm"].tolist() == [
            [IGNORE] * 3 + [20, end] + [IGNORE] * 4,
            [IGNORE] * 5 + [21, 21, end, IGNORE],
        ]
        assert rows.values["cut"].tolist() == [0, 5 + 7]
    bare = replace(toy.vocab, single=("A",), pair=("A", "B"))
    assert sequences.lay_behind([[10]], [[20]], bare, max_length=4, max_target=3).seqs[
        "text"
    ].ids.tolist() == [[10, 3, 20, 3]]
    with pytest.raises(ConfigError, match=r"task.max_length=2: too short for 2 special tokens"):
        sequences.lay_behind([[10]], [[20]], toy.vocab, max_length=2, max_target=3)
    with pytest.raises(ConfigError, match="no text could end"):
        sequences.lay_behind(
            [[10]], [[20]], replace(toy.vocab, eos=None), max_length=4, max_target=3
        )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_of_the_target_alone(kind, smoothing, toy):
    """Against a loop over examples and tokens, each example by itself."""
    words, writes = KINDS[kind]
    task = _task(f"task.smoothing={smoothing}", writes=writes, segments=SEGMENTS.get(kind, (0, 1)))
    rows = task.encode(EXAMPLES, toy)
    model = _model(task, toy.vocab, *words)
    whole = batches.collate(rows, np.array([2, 0, 1]))
    out = task(model, whole)
    expected, count = 0.0, 0
    for number, (_, gold) in enumerate(PAIRS):
        alone = batches.collate(rows, np.array([number]))
        logp = model.heads[task.facts.head](model(alone).last[0]).log_softmax(-1).detach()
        ids = [*([2] if writes == "target" else []), *toy.encode(gold)[: 8 - 1], 3]
        first = 0 if writes == "target" else alone.text.ids.shape[1] - len(ids) - 1
        for place, token in enumerate(ids):
            row = logp[first + place]
            expected += float((smoothing - 1) * row[token] - smoothing * row.mean())
            count += 1
    assert out.terms[task.facts.head].total.item() == pytest.approx(expected, abs=1e-9)
    assert task.counts(whole) == {task.facts.head: count}
    parts = [
        task(model, batches.collate(rows, np.array(part))).terms[task.facts.head].total.item()
        for part in ([0], [1, 2])
    ]
    assert sum(parts) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_no_target_token_sees_a_later_one(kind, toy):
    words, writes = KINDS[kind]
    task = _task(writes=writes, segments=SEGMENTS.get(kind, (0, 1)))
    model = _model(task, toy.vocab, *words)
    batch = batches.collate(task.encode(EXAMPLES[:1], toy), np.array([0]))
    x = model.backbone.embed(batch).detach().requires_grad_()
    last = model.backbone.encode(x, batch).last[0]
    for place in range(last.shape[0]):
        later = x.new_ones(x.shape[1], dtype=torch.bool)
        later[: place + 1] = False
        if writes == "text":
            later &= batch.text.tracks["segment"][0] == task.segments[1]
        grad = torch.autograd.grad((last[place] ** 3).sum(), x, retain_graph=True)[0][0]
        assert (grad[later] == 0).all()
        assert place == 0 or (grad[~later] != 0).any()


@pytest.mark.parametrize("kind", KINDS)
def test_texts_and_scores_follow_from_the_model(kind, toy):
    words, writes = KINDS[kind]
    task = _task(
        "task.metrics=[rougeL,perplexity]", writes=writes, segments=SEGMENTS.get(kind, (0, 1))
    )
    toy.decode = lambda ids, skip_special=True: " ".join(
        str(i) for i in ids if not (skip_special and toy.vocab.special[i])
    )
    model = _model(task, toy.vocab, *words)
    split = inference.encode_split(task, "dev", EXAMPLES, toy)
    found, loss = _predicted(model, task, split)
    alone = [
        _predicted(model, task, inference.encode_split(task, "dev", [example], toy))
        for example in EXAMPLES
    ]
    assert [p["guess"] for p in found] == [one[0][0]["guess"] for one in alone]
    assert [p["golds"] for p in found] == [[t, "other"] for _, t in PAIRS]
    # plain, though training is smoothed
    assert math.log(task.score(found)["perplexity"]) == pytest.approx(loss)
    rows = task.encode(EXAMPLES, toy)
    logits = (
        model.heads[task.facts.head](model(batches.collate(rows, np.array([1]))).last[0])
        .log_softmax(-1)
        .detach()
    )
    asked = rows.targets[task.facts.head][1]
    nll = -sum(float(logits[place, token]) for place, token in enumerate(asked) if token != IGNORE)
    assert found[1]["nll"] == pytest.approx(nll, rel=1e-6)
    assert found[1]["tokens"] == (asked != IGNORE).sum()


@pytest.mark.parametrize("kind", KINDS)
def test_new_sources_need_no_target(kind, toy):
    words, writes = KINDS[kind]
    task = _task(writes=writes, segments=SEGMENTS.get(kind, (0, 1)))
    toy.decode = lambda ids, skip_special=True: "text"
    model = _model(task, toy.vocab, *words)
    split = inference.encode_split(
        task, "new", [task.parse("a cat\n", 1), task.parse("dogs bark", 2)], toy
    )
    found, loss = _predicted(model, task, split)
    assert loss is None
    assert found[0] == {"id": "0", "source": "a cat\n", "golds": None, "guess": "text"}


def test_what_stands_before_every_source(toy):
    task = _task("task.prefix='to German: '")
    rows = task.encode(EXAMPLES[:1], toy)
    assert rows.seqs["source"].ids[0, 1:4].tolist() == toy.encode("to German: a")[:3]


def test_impossible_settings_are_refused():
    with pytest.raises(
        ConfigError, match=r"(?s)model='Encoder'.*needs a model that writes.*model=encoder_decoder"
    ):
        _task(writes="text", directed=False, kind="Encoder")
    with pytest.raises(ConfigError, match=r"task.smoothing=1.0: 0 \(none\) up to 1"):
        _task("task.smoothing=1.0")
    told = r"task.spread='other': one of all, others, or null \(did you mean 'others'\?\)"
    with pytest.raises(ConfigError, match=told):
        _task("task.spread=other")
    with pytest.raises(DataError, match=r"x.tsv:1: source or target is empty"):
        _task().fit_labels([Example("0", {"source": " "}, ("a",), "x.tsv:1")])


def test_the_longest_row_and_the_best_score():
    assert (_task().lengths.longest, _task(writes="text").lengths.longest) == (12, 20)
    assert is_larger_better(_task().metrics[0])
    assert not is_larger_better(_task("task.metrics=[perplexity,bleu]").metrics[0])


@pytest.mark.parametrize("order", ["[sap,A]", "[A,A]", "[sep]"])
def test_a_template_that_no_tokenizer_writes_is_refused(toy, order):
    task = _task(f"task.source_template={order}")
    with pytest.raises(ConfigError, match=r"one A, the text, and around it of pad") as raised:
        task.encode(EXAMPLES, toy)
    assert raised.value.path == "task.source_template"
    assert raised.value.fix == "task.source_template=[A,sep]" or order == "[A,A]"
