"""GPT's input transformations and its auxiliary loss, against their definitions."""

import json

import numpy as np
import pytest
import torch

from plmctl.artifacts.assemble import build_model
from plmctl.config import compose as config
from plmctl.config.command import perform
from plmctl.core.batch import IGNORE
from plmctl.core.errors import ConfigError
from plmctl.tasks import batches
from plmctl.tasks.classification import Classification
from plmctl.tasks.readers.tables import Table
from plmctl.tasks.record import Example
from plmctl.tasks.regression import Regression
from plmctl.tasks.transform import Transform

EXAMPLES = [
    Example(str(n), {"text": a, "text2": b}, label, f"x:{n}")
    for n, (a, b, label) in enumerate(
        [
            ("a cat sat", "dogs bark loudly", "1"),
            ("why", "never say never", "2"),
            ("here and there", "now", "1"),
        ]
    )
]
GPT = {"own_tokens": True, "both_orders": True, "language_model": 0.5}
START, DELIMITER, EXTRACT = 500, 501, 502  # behind the 500 tokens of the toy tokenizer


def _task(kind=Classification, *, symmetric=True, transform=GPT, **settings):
    return kind(
        name="toy",
        reader=Table(splits={}),
        columns={},
        max_length=16,
        metrics=[],
        symmetric=symmetric,
        transform=Transform(**transform),
        pooling="last",
        **settings,
    )


def _model(head, outputs):
    words = [
        "task=sst2",
        "task.path=x",
        "checkpoint=null",
        "size=tiny",
        "model=decoder",
        "pattern=causal",
        "position.max_length=32",
    ]
    heads = {
        head: {
            "_target_": "plmctl.heads.classify.Classify",
            "num_classes": outputs,
            "dropout": 0.0,
        },
        "clm": {
            "_target_": "plmctl.heads.lm.LMHead",
            "tied": True,
            "transform": False,
            "bias": False,
        },
    }
    return (
        build_model(config.compose("finetune", None, words), vocab_size=503, heads=heads, seed=1)
        .double()
        .eval()
    )


def test_start_delimiter_extract(gpt_toy):
    task = _task(symmetric=False, label_names=["1", "2"])
    rows = task.encode(EXAMPLES, gpt_toy)
    a, b = (gpt_toy.encode(EXAMPLES[0].fields[name]) for name in ("text", "text2"))
    expected = [START, *a, DELIMITER, *b, EXTRACT]
    assert rows.seqs["text"].ids[0, : len(expected)].tolist() == expected
    assert rows.anchors[0].tolist() == [0, len(expected) - 1]
    assert rows.targets["clm"][0, : len(expected)].tolist() == [*expected[1:], IGNORE]
    single = [Example("0", {"text": "a cat sat"}, "1")]
    assert task.encode(single, gpt_toy).seqs["text"].ids.tolist() == [[START, *a, EXTRACT]]


def test_both_orders_are_added_before_the_head(gpt_toy):
    """And the loss is that of the examples, with half the language model's mean over all tokens
    of both rows.
    """
    task, model = _task(label_names=["1", "2"]), _model("class", 2)
    rows = task.encode(EXAMPLES, gpt_toy)
    units = batches.BatchUnits.of(rows)
    batch = batches.collate(rows, units.rows(np.array([2, 0, 1])))
    out = task(model, batch)
    loss, language = 0.0, 0.0
    for example in EXAMPLES:
        a, b = (gpt_toy.encode(example.fields[name]) for name in ("text", "text2"))
        total = 0
        for ids in ([START, *a, DELIMITER, *b, EXTRACT], [START, *b, DELIMITER, *a, EXTRACT]):
            row = batches.collate(
                rows,
                np.array(
                    [
                        [
                            list(x[:n])
                            for x, n in zip(
                                rows.seqs["text"].ids, rows.seqs["text"].length, strict=True
                            )
                        ].index(ids)
                    ]
                ),
            )
            states = model(row).last[0]
            total = total + states[-1]
            logp = model.heads["clm"](states).log_softmax(-1)
            language -= sum(logp[t, ids[t + 1]] for t in range(len(ids) - 1)).item()
        loss -= model.heads["class"](total).log_softmax(-1)[int(example.label) - 1].item()
    assert out.terms["class"].total.item() == pytest.approx(loss, abs=1e-5)
    assert out.terms["clm"].total.item() == pytest.approx(language, abs=1e-9)
    assert (out.terms["class"].weight, out.terms["clm"].weight) == (1.0, 0.5)
    counts = task.counts(batch)
    assert counts["class"] == 3
    assert counts["clm"] == int((rows.seqs["text"].length - 1).sum())
    assert task.facts.heads == {"class", "clm"}
    logits = {"class": np.arange(12.0).reshape(6, 2)}
    assert [p["gold"] for p in task.predict(logits, rows, EXAMPLES)] == ["1", "2", "1"]


def test_scores_of_both_orders(gpt_toy):
    task, model = _task(Regression, transform=GPT | {"language_model": 0.0}), _model("score", 1)
    rows = task.encode(EXAMPLES, gpt_toy)
    batch = batches.collate(rows, np.arange(6))
    guess = task.logits(model, batch)["score"]
    torch.testing.assert_close(guess[::2], guess[1::2], atol=1e-12, rtol=0)
    gold = torch.tensor([1.0, 2.0, 1.0])
    assert task(model, batch).terms["score"].total.item() == pytest.approx(
        (guess[::2] - gold).square().sum().item(), abs=1e-5
    )
    assert "clm" not in task(model, batch).terms


def test_evaluation_knows_nothing_of_the_auxiliary_loss(gpt_toy):
    from plmctl.tasks import inference

    task, model = _task(label_names=["1", "2"]), _model("class", 2)
    rows = task.encode(EXAMPLES, gpt_toy)
    with torch.no_grad():
        _, loss = inference.run(model, task, rows, batch_size=2, device=torch.device("cpu"))
        whole = task(model, batches.collate(rows, np.arange(6)))
    assert loss == pytest.approx(whole.terms["class"].total.item() / 3, rel=1e-5)


def test_a_model_that_sees_the_answer_is_refused():
    with pytest.raises(
        ConfigError,
        match=r"language_model=0.5: 0: in this model every token sees the token to predict",
    ):
        Transform(language_model=0.5, causal=False)
    with pytest.raises(ConfigError, match=r"language_model=-1: 0 \(none\) or a weight above it"):
        Transform(language_model=-1)


@pytest.mark.slow  # the model is compared in the next tests
def test_from_gpt_to_a_task_and_back(tmp_path, capsys):
    """Its language model's head is the checkpoint's, its table grows by three rows, and what is
    saved is evaluated.
    """
    from plmctl import load

    (tmp_path / "data").mkdir()
    lines = [f"{word} cat\ta dog\t{label}" for word, label in (("good", "yes"), ("bad", "no"))] * 8
    for name in ("train", "dev"):
        (tmp_path / "data" / f"{name}.tsv").write_text(
            "text\ttext2\tlabel\n" + "\n".join(lines) + "\n"
        )

    def run(verb, *words):
        return perform(config.compose(verb, None, list(words)).asked(json=True))

    common = [
        "task=pair_classification",
        f"task.path={tmp_path / 'data'}",
        "train.precision=fp32",
        "train.threads=1",
        "train.epochs=1",
        "train.batch_size=8",
        "task.max_length=16",
        "optim.lr=1e-3",
    ]
    scratch = [
        "checkpoint=null",
        "size=tiny",
        "size.num_layers=1",
        "tokenizer=byte_bpe",
        "tokenizer.vocab_size=264",
    ]
    with pytest.raises(ConfigError, match=r"task.transform.language_model"):
        run(
            "finetune",
            *common,
            *scratch,
            "model=encoder",
            "transform@task.transform=gpt",
            f"run.dir={tmp_path / 'x'}",
        )
    scratch += ["model=decoder", "pattern=causal", "tokenizer.specials=gpt2"]
    assert (
        run(
            "finetune",
            *common,
            *scratch,
            "task.transform.language_model=0.5",
            f"run.dir={tmp_path / 'first'}",
        )
        == 0
    )
    first = load(tmp_path / "first")
    rows = first.source.vocab_size
    more = [
        "transform@task.transform=gpt",
        "task.symmetric=true",
        f"checkpoint={tmp_path / 'first'}",
    ]
    assert run("finetune", *common, *more, f"run.dir={tmp_path / 'second'}") == 0
    assert "nothing is new" in capsys.readouterr().err
    second = load(tmp_path / "second")
    assert second.source.vocab_size == rows + 3
    records = [
        json.loads(line)
        for line in (tmp_path / "second" / "metrics.jsonl").read_text().splitlines()
    ]
    assert any("loss/clm" in record for record in records)
    result = json.loads((tmp_path / "second" / "result.json").read_text())["metrics"]
    capsys.readouterr()
    assert run("eval", f"checkpoint={tmp_path / 'second'}") == 0
    assert json.loads(capsys.readouterr().out)["metrics"] == result


@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        ({}, 3),  # pairs have an order unless the settings say otherwise
        ({"symmetric": False}, 3),
        ({"symmetric": True}, 6),
        ({"symmetric": True, "transform": Transform(own_tokens=True)}, 3),
    ],
)
def test_pairs_are_read_both_ways_where_they_have_no_order(gpt_toy, settings, rows):
    words = {"name": "toy", "reader": Table(splits={}), "columns": {}, "max_length": 16}
    given = {"metrics": [], "pooling": "last", "transform": Transform(**GPT), **settings}
    made = Classification(**words, label_names=["1", "2"], **given).encode(EXAMPLES, gpt_toy)
    assert len(made.key) == rows
    asked = made.seqs["text"].ids[:2, 1].tolist()
    second = EXAMPLES[0].fields["text2"] if rows == 6 else EXAMPLES[1].fields["text"]
    assert asked == [gpt_toy.encode(EXAMPLES[0].fields["text"])[0], gpt_toy.encode(second)[0]]
