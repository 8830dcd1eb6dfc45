"""Next and previous words, by a loop over places; targets of rows and of streams; the perplexity
of a run is said.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from plmctl.artifacts.assemble import build_model, build_objective
from plmctl.cli.app import make_app
from plmctl.config.compose import compose
from plmctl.core.batch import IGNORE, Rows, Seq
from plmctl.core.collate import collate
from plmctl.core.errors import ConfigError
from plmctl.objectives.bilm import BidirectionalLM
from plmctl.runs.contract.contract import check_contract
from plmctl.runs.contract.stand_in import TINY

SMALL = [
    "size.width=16",
    "size.inner_width=24",
    "model.words.filters=[[1,4],[2,6]]",
    "tokenizer.vocab_size=300",
]


def rows(**tracks: np.ndarray) -> Rows:
    ids = np.array([[1, 2, 3, 4, 0], [5, 6, 7, 1, 2]])
    return Rows(np.arange(2), {"text": Seq(ids, np.array([4, 5]), tracks)})


def test_labels_of_a_row() -> None:
    found = BidirectionalLM(vocab=TINY).labels(rows())
    assert found["clm"].tolist() == [[2, 3, 4, IGNORE, IGNORE], [6, 7, 1, 2, IGNORE]]
    assert found["backward"].tolist() == [[IGNORE, 1, 2, 3, IGNORE], [IGNORE, 5, 6, 7, 1]]
    found = BidirectionalLM(vocab=TINY).labels(
        rows(document=np.array([[0, 0, 1, 1, -1], [0, 0, 0, 1, 1]]))
    )
    assert found["clm"].tolist() == [[2, IGNORE, 4, IGNORE, IGNORE], [6, 7, IGNORE, 2, IGNORE]]
    assert found["backward"].tolist() == [[IGNORE, 1, IGNORE, 3, IGNORE], [IGNORE, 5, 6, IGNORE, 1]]


def test_rare_words_are_asked_for_as_the_unknown_one() -> None:
    found = BidirectionalLM(vocab=TINY, words=4).labels(rows())  # 1 is the unknown word of TINY
    assert found["clm"].tolist() == [[2, 3, 1, IGNORE, IGNORE], [1, 1, 1, 2, IGNORE]]
    with pytest.raises(ConfigError, match="the id of the unknown word"):
        BidirectionalLM(vocab=TINY, words=1)


def test_the_loss_is_the_mean_of_both_directions() -> None:
    cfg = compose("pretrain", "elmo", ["data.path=x", *SMALL])
    model = build_model(cfg, vocab_size=TINY.size, vocab=TINY, seed=0).double().eval()
    objective = build_objective(cfg.objective, model, TINY, seed=cfg.seed)
    given = rows()
    batch = collate(given.with_targets(**objective.labels(given)), {})
    out, counts = objective(model, batch), objective.counts(batch)
    found = sum(term.weight * term.total.item() / counts[name] for name, term in out.terms.items())
    streams, text = model(batch).streams, given.seqs["text"]
    slow = {"forward": [], "backward": []}
    for name, step in (("forward", 1), ("backward", -1)):
        for row, n in enumerate(text.length):
            for place in range(n):
                if 0 <= place + step < n:
                    logits = model.heads["bilm"](streams[name][row, place]).tolist()
                    answer = text.ids[row, place + step]
                    slow[name].append(math.log(sum(map(math.exp, logits))) - logits[answer])
    wanted = sum(0.5 * sum(losses) / len(losses) for losses in slow.values())
    assert found == pytest.approx(wanted, rel=1e-6)
    assert set(out.logs) == {"acc/clm", "acc/backward"}


def test_wrong_tokenizer_and_tied_head_are_refused_before_work() -> None:
    with pytest.raises(
        ConfigError,
        match="tokenizer='wordpiece': word: this model reads the characters of whole words",
    ):
        check_contract(compose("pretrain", "elmo", ["tokenizer=wordpiece"]))
    with pytest.raises(
        ConfigError, match=r"heads.mlm.tied=True: false: this model reads characters"
    ):
        check_contract(
            compose(
                "pretrain",
                "elmo",
                ["objective=[mlm]", "noise=[token_mask]", "heads.mlm.transform=false"],
            )
        )
    # rows that do not go on do as well
    check_contract(compose("pretrain", "elmo", ["format=sentences"]))


def plmctl(*words: str) -> None:
    result = CliRunner().invoke(make_app(), list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output


@pytest.mark.slow  # test_pretrain_command.py resumes
def test_a_run_says_its_perplexity_and_resumes_bit_for_bit(
    small_text: Path, tmp_path: Path
) -> None:
    """The memory of both directions is part of a checkpoint."""
    words = [
        "pretrain",
        "elmo",
        f"data.path={small_text}",
        *SMALL,
        "format.max_length=8",
        "train.batch_size=4",
        "eval.rows=8",
        "data.valid_share=0.1",
        "heads.bilm.samples=16",
        "train.precision=fp32",
        "train.threads=1",
        "schedule=constant",
        "train.log_every=1",
        "train.save_every=2",
        "optim=adagrad",
    ]
    plmctl(*words, "train.steps=4", f"run.dir={tmp_path / 'whole'}")
    plmctl(*words, "train.steps=2", f"run.dir={tmp_path / 'parts'}")
    plmctl("pretrain", "--resume", f"run.dir={tmp_path / 'parts'}", "train.steps=4")
    one, two = (
        (tmp_path / name / "checkpoints" / "step-4" / "model.safetensors").read_bytes()
        for name in ("whole", "parts")
    )
    assert one == two
    lines = [
        json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()
    ]
    valid = next(line for line in reversed(lines) if "valid/loss" in line)
    for name in ("clm", "backward"):
        assert valid[f"valid/perplexity/{name}"] == pytest.approx(
            math.exp(valid[f"valid/loss/{name}"]), rel=1e-4
        )
    assert valid["valid/loss"] == pytest.approx(
        (valid["valid/loss/clm"] + valid["valid/loss/backward"]) / 2, rel=1e-5
    )
