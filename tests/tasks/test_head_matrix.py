"""Every task on every backbone: what stands for a row has read all of it, and what cannot be is
refused by name.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.artifacts.model_facts import pooling
from plmctl.config import compose as config
from plmctl.core.errors import ConfigError, ConfigErrors
from plmctl.heads.features import read as features_of
from plmctl.runs.adapt import complete
from plmctl.runs.resolve import build_task
from plmctl.runs.task_fit import fit_language_heads, fit_task
from plmctl.tasks import batches, inference
from plmctl.tasks.layouts import encode
from plmctl.tasks.record import Example
from plmctl.text.tokenizer import Tokenizer
from tests.marks import mark_slow

WIDE = ["size.width=32", "size.num_heads=2", "size.inner_width=48", "size.num_layers=2"]
BACKBONES = {
    "encoder": ["model=encoder"],
    "decoder": ["model=decoder", "pattern=causal"],
    "prefix": ["model=encoder", "pattern=prefix"],
    "encoder_decoder": ["model=encoder_decoder"],
    "two_stream": ["model=xlnet", "position=none"],
    "transformer_xl": ["model=xlnet", "position=none", "pattern=causal", "model.two_streams=false"],
    "bilm": ["model=bilm", "model.words.filters=[[1,8],[2,8]]"],
}
TEXT, PAIR = {"text": "one small cat sat here"}, {"text": "one small cat", "text2": "two dogs"}
EXAMPLES = {
    "classification": [Example("0", TEXT, "yes"), Example("1", {"text": "dogs"}, "no")],
    "pair_classification": [
        Example("0", PAIR, "yes"),
        Example("1", {"text": "dogs", "text2": "here"}, "no"),
    ],
    "regression": [Example("0", TEXT, "1.5"), Example("1", {"text": "dogs"}, "2")],
    "tagging": [
        Example("0", {"words": TEXT["text"].split()}, ["O", "O", "B-X", "O", "O"]),
        Example("1", {"words": ["dogs"]}, ["B-X"]),
    ],
    "squad": [
        Example(
            "0", {"question": "two dogs", "context": TEXT["text"], "answers": ["cat"]}, (10, 13)
        ),
        Example("1", {"question": "cat", "context": "here", "answers": ["here"]}, (0, 4)),
    ],
    "choice": [
        Example("0", {"text": "one small cat", "choices": ["sat", "two dogs", "here"]}, "1"),
        Example("1", {"text": "dogs", "choices": ["sat", "here"]}, "0"),
    ],
    "translation": [
        Example("0", {"source": "one small cat"}, ("two dogs",)),
        Example("1", {"source": "dogs"}, ("here sat",)),
    ],
}
WRITE = {"decoder", "prefix", "encoder_decoder", "transformer_xl"}
# the others: first
POOLING = {"decoder": "last", "prefix": "last", "transformer_xl": "last", "encoder_decoder": "last"}


@pytest.fixture(scope="module")
def tokenizer():
    texts = ["one small cat sat here", "two dogs sat", "yes no"]
    return Tokenizer.train(
        texts, kind="word", vocab_size=64, lowercase=False, punctuation=True, min_frequency=1
    )


def _config(task, backbone, *words):
    told = (
        f"task={task}",
        "task.path=x",
        "checkpoint=null",
        "tokenizer=word",
        "task.max_length=16",
        *WIDE,
    )
    told += (*BACKBONES[backbone], *words)
    more = {
        "squad": ("task.max_query=4", "task.stride=4"),
        "translation": ("task.max_target=8", "search@task.search=greedy"),
    }
    return complete(config.compose("finetune", None, list(told + more.get(task, ()))))


# answers are read at words inside the text
MARKED = {
    "wic": [Example("0", {**PAIR, "word": "cat", "places": [(10, 13), (4, 8)]}, "true")],
    "relation": [
        Example(
            "0",
            {
                **TEXT,
                "entities": [
                    {"start": 4, "end": 13, "type": "", "id": ""},
                    {"start": 14, "end": 17, "type": "", "id": ""},
                ],
            },
            "no",
        )
    ],
}


def _ready(task, backbone, tokenizer, *words):
    """(task, model, batch) as fine-tuning makes them."""
    cfg = _config(task, backbone, *words)
    part = build_task(cfg)
    cfg = fit_language_heads(cfg, part)
    examples = (EXAMPLES | MARKED)[task]
    part.fit_labels(examples)
    cfg = fit_task(cfg, part)
    model = build_model(
        cfg,
        vocab_size=tokenizer.vocab.size + part.transform.new_tokens,
        vocab=tokenizer.vocab,
        seed=2,
    )
    rows = inference.encode_split(part, "train", examples, tokenizer).rows
    return part, model.double().eval(), batches.collate(rows, np.arange(len(rows.key)))


POSSIBLE = [
    (task, backbone)
    for task in EXAMPLES
    for backbone in BACKBONES
    if task != "translation" or backbone in WRITE
]


# these ask of a row, or of its tokens, as classification and tagging do
ALIKE = {"pair_classification", "regression", "choice", "squad"}
SLOW = [case for case in POSSIBLE if case[0] in ALIKE and case[1] not in ("encoder", "bilm")]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("task", "backbone"), mark_slow(POSSIBLE, SLOW))
def test_trains(task, backbone, tokenizer):
    """A step against the gradient, which reaches the backbone, makes the loss smaller."""
    part, model, batch = _ready(task, backbone, tokenizer)
    assert part.pooling == POOLING.get(backbone, "first")
    loss = sum(term.total for term in part(model, batch).terms.values())
    loss.backward()
    moved = [p for p in model.parameters() if p.grad is not None]
    with torch.no_grad():
        for p in moved:
            p -= 1e-3 * p.grad / (1e-9 + torch.sqrt(sum((q.grad**2).sum() for q in moved)))
    again = sum(term.total for term in part(model, batch).terms.values())
    assert again < loss
    assert any(p.grad is not None and p.grad.any() for p in model.backbone.parameters())
    if task == "translation":
        with torch.no_grad():
            assert part.logits(model, batch)["written"].shape == (2, part.max_target)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("backbone", ["encoder", "encoder_decoder", "decoder"])
@pytest.mark.parametrize("task", MARKED)
def test_words_inside_the_text_have_seen_its_end(task, backbone, tokenizer):
    """Those of a decoder by the states of its encoder; other decoders are refused."""
    words = ["task.marks=none", "task.label_names=[no,yes]"] if task == "relation" else []
    if backbone == "decoder":
        with pytest.raises(ConfigError, match="a model whose tokens see later ones"):
            _ready(task, backbone, tokenizer, *words)
        return
    _, model, batch = _ready(task, backbone, tokenizer, *words)
    text = batch.seqs["text"]
    last = int(text.length[0]) - 2
    other = text.ids.clone()
    other[0, last] = tokenizer.vocab.id("cls")
    changed = replace(batch, seqs={**batch.seqs, "text": replace(text, ids=other)})
    with torch.no_grad():
        before, after = (features_of(model, each)[0, :last] for each in (batch, changed))
    assert ((before - after).abs().amax(-1) > 1e-9).all()


def test_vectors_of_entities_are_not_those_of_the_rows_pooling(tokenizer):
    part, model, batch = _ready(
        "relation", "encoder", tokenizer, "row_pooling=late", "task.label_names=[no,yes]"
    )
    assert part(model, batch).terms["class"].total.isfinite()
    assert model.heads["class"].late is False


@pytest.mark.sampled(3)
@pytest.mark.parametrize("task", ["classification", "pair_classification", "choice"])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_what_stands_for_a_row_has_read_all_of_it(task, backbone, tokenizer):
    _, model, batch = _ready(task, backbone, tokenizer)
    row, place = batch.anchors[0].tolist()
    length = int(batch.text.length[row])
    backbone_ = model.backbone
    if backbone == "encoder_decoder":  # what is read at its other end
        x = backbone_.encoder.embed_tokens(batch.text).detach().requires_grad_()
        backbone_.encoder.embed_tokens = lambda seq, start=0: x
        last = backbone_(batch).last
        del backbone_.encoder.embed_tokens
    else:
        x = backbone_.embed(batch).detach().requires_grad_()
        last = backbone_.encode(x, batch).last
    grad = torch.autograd.grad((last[row, place] ** 3).sum(), x)[0][row].abs().sum(-1)
    assert (grad[:length] > 0).all()
    assert (grad[length:] == 0).all()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("task", ["tagging", "squad"])
@pytest.mark.parametrize("backbone", ["encoder", "encoder_decoder", "two_stream", "bilm"])
def test_every_token_has_read_all_of_the_row(task, backbone, tokenizer):
    _, model, batch = _ready(task, backbone, tokenizer)
    found, ids, last = (
        model(replace(batch, seqs={"text": batch.text})).last,
        batch.text.ids,
        tokenizer.vocab.size - 1,
    )
    for place in range(int(batch.text.length[0])):
        changed = ids.clone()
        changed[0, place] = last - int(ids[0, place] == last)  # another word
        other = model(replace(batch, seqs={"text": replace(batch.text, ids=changed)})).last
        assert (
            (other[0, : int(batch.text.length[0])] != found[0, : int(batch.text.length[0])])
            .any(-1)
            .all()
        )


def test_xlnets_last_cls_stands_for_a_row(tokenizer):
    vocab = replace(
        tokenizer.vocab, single=("A", "sep", "cls"), pair=("A", "sep", "B", "sep", "cls")
    )
    cfg = _config("classification", "two_stream")
    row = encode.lay_out([10, 11], [12], vocab, max_length=16, pooling=pooling(cfg))
    assert row.ids[row.anchor] == vocab.cls
    assert row.anchor == len(row.ids) - 1


def test_bart_reads_the_last_end_token_of_its_decoder(tokenizer):
    _, _, batch = _ready("pair_classification", "encoder_decoder", tokenizer)
    assert batch.anchors[:, 1].tolist() == (batch.text.length - 1).tolist()
    assert (batch.text.ids[batch.anchors[:, 0], batch.anchors[:, 1]] == tokenizer.vocab.eos).all()


@pytest.mark.parametrize("backbone", sorted(set(BACKBONES) - WRITE))
def test_what_reads_both_ways_cannot_write(backbone):
    kind = {"encoder": "Encoder", "two_stream": "XLNet", "bilm": "BiLM"}[backbone]
    with pytest.raises(
        (ConfigError, ConfigErrors),
        match=rf"(?s)model='{kind}'.*task=translation needs a model that writes",
    ):
        _ready("translation", backbone, None)


@pytest.mark.parametrize("backbone", sorted(set(BACKBONES) - {"decoder", "transformer_xl"}))
def test_a_language_model_beside_the_task_needs_a_causal_model(backbone):
    with pytest.raises(
        (ConfigError, ConfigErrors),
        match=r"task.transform.language_model=0.5: 0: in this model every token sees",
    ):
        _ready("classification", backbone, None, "task.transform.language_model=0.5")


@pytest.mark.parametrize("backbone", ["decoder", "transformer_xl"])
def test_gpts_transforms_on_what_reads_from_left_to_right(backbone, tokenizer):
    part, model, batch = _ready(
        "pair_classification",
        backbone,
        tokenizer,
        "transform@task.transform=gpt",
        "task.symmetric=true",
    )
    out = part(model, batch)
    assert set(out.terms) == {"class", "clm"}
    assert part.counts(batch)["class"] == 2
    assert len(batch.anchors) == 4
