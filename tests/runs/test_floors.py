"""Where a pretraining stands: the losses of counting beside its own, and the lines about them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from plmctl.core.errors import PlmctlError
from plmctl.data.shards import Shards
from plmctl.report.page import Chart
from plmctl.report.subject import find_subject
from plmctl.report.write import make_blocks
from plmctl.runs.floors import OTHERWISE, Floors
from plmctl.text.tokenizer import Tokenizer
from plmctl.training.progress import Progress
from tests.commands.test_pretrain_command import TINY, pretrain

ROTARY = {"_target_": "plmctl.nn.positions.Rotary"}
PRE_NORM = {"stack": {"residual": {"_target_": "plmctl.nn.residual.PreNorm"}}}


def scores(loss: float) -> dict[str, float]:
    return {"loss/mlm": loss, "unigram/mlm": 7.0, "bigram/mlm": 5.5, "loss/nsp": 0.7}


def lines(curve: list[tuple[float, float]], **config: object) -> list[str]:
    """What is said over a curve of (million tokens, loss)."""
    floors = Floors(["mlm"], config)
    said = []
    for tokens, loss in curve:
        said += floors.remark(Progress(tokens=int(tokens * 1e6)), scores(loss))
    return said


def test_each_step_is_said_once() -> None:
    said = lines(
        [(0.1, 7.2), (0.3, 6.97), (0.5, 6.9), (0.7, 6.8), (2.5, 5.4), (3, 5.3), (3.5, 5.6)]
    )
    assert len(said) == 2
    assert "left the frequencies of single tokens (6.900 < 7.000) after 0.5 M tokens" in said[0]
    assert "below pairs of tokens (5.400 < 5.500) after 2.5 M tokens" in said[1]


def test_of_few_held_out_tokens_only_that_is_said() -> None:
    """Of a text of 60 kB a few hundred tokens are held out, and any model may win on them."""
    floors = Floors(["mlm"], {}, held_out=200)
    said = [floors.remark(Progress(tokens=9), scores(loss)) for loss in (7.2, 5.0, 6.0)]
    assert said[0] == said[2] == []
    assert "200 tokens are held out: too few" in said[1][0]


def test_a_run_that_passes_both_at_once_is_told_of_the_second() -> None:
    assert ["below pairs of tokens" in line for line in lines([(1, 5.0)])] == [True]


@pytest.mark.parametrize(
    ("config", "lever"),
    [
        ({"position": {"_target_": "plmctl.nn.positions.Learned"}}, "position=rotary"),
        (
            {
                "position": ROTARY,
                "model": {"stack": {"residual": {"_target_": "plmctl.nn.residual.PostNorm"}}},
            },
            "model.stack.residual._target_=plmctl.nn.residual.PreNorm",
        ),
        ({"position": ROTARY, "model": PRE_NORM}, OTHERWISE),
    ],
)
def test_a_run_that_stays_is_told_what_helps(config: dict, lever: str) -> None:
    assert lines([(1.9, 7.1)], **config) == []  # others needed less, but not so much less
    said = lines([(2, 7.1), (3, 6.99), (4, 6.5)], **config)
    assert "still at the frequencies of single tokens" in said[0]
    assert said[0].endswith(lever)
    assert len(said) == 2
    assert "left the frequencies" in said[1]


def test_a_smoothed_loss_is_not_compared() -> None:
    smooth = {**scores(7.5), "nll/mlm": 6.0}
    assert "left" in Floors(["mlm"], {}).remark(Progress(tokens=1), smooth)[0]


def test_the_run_shows_what_counting_reaches(
    tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    """In the file as the definition says, on the line, in the picture of the report."""
    home = tokens_of("wordpiece")
    words = ["bert", *TINY, f"data.path={home}", "train.steps=4", f"run.dir={tmp_path / 'run'}"]
    output = pretrain(*words)
    train, valid = (Shards.open(home, split).ids for split in ("train", "valid"))
    special = Tokenizer.load(home / "tokenizer").vocab.special
    asked = [int(i) for i in valid if not special[i]]
    counts = Counter(int(i) for i in train if not special[i])
    total = sum(counts.values()) + int((~special).sum())
    unigram = -np.mean([math.log((counts[i] + 1) / total) for i in asked])
    records = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").open()]
    last = next(record for record in reversed(records) if "valid/loss/mlm" in record)
    assert last["valid/unigram/mlm"] == pytest.approx(unigram, rel=1e-5)
    assert 0 < last["valid/bigram/mlm"] < last["valid/unigram/mlm"]
    assert not any(key.endswith("/nsp") and "gram" in key for key in last)
    assert f"unigram {unigram:.3g}" in output
    blocks = make_blocks(find_subject([tmp_path / "run"]))
    picture = next(block for block in blocks if isinstance(block, Chart) and block.name == "loss")
    assert "frequencies of tokens (mlm)" in picture.svg
    assert "frequencies of pairs" in picture.svg


@pytest.mark.slow  # test_the_run_shows_what_counting_reaches stays
def test_sentinels_are_not_compared_with_words(
    tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    home = tokens_of("unigram", "tokenizer.sentinels=20")
    eval_noise = "eval.noise={span_sentinel:${noise.span_sentinel}}"
    words = ["t5", *TINY, f"data.path={home}", "train.steps=2", f"run.dir={tmp_path}"]
    assert "unigram" not in pretrain(*words, eval_noise).split("step 1")[1]


def end(loss: float, *, held_out: int = 5000) -> list[str]:
    floors = Floors(["mlm"], {}, held_out=held_out)
    floors.remark(Progress(tokens=9), scores(loss))
    return floors.conclude(3000)


def test_the_end_says_whether_a_run_knows_contexts() -> None:
    for loss in (7.2, 7.0, 6.96):
        assert "has not left the frequencies of single tokens" in end(loss)[0]
    assert end(6.9) == end(5.0) == end(7.2, held_out=200) == []
    assert Floors(["mlm"], {}).conclude(3000) == []  # nothing was held out


def test_the_end_names_the_model_whose_loss_it_is_and_how_near_it_is() -> None:
    floors = Floors(["mlm"], {}, generated={"mlm"})
    floors.remark(Progress(tokens=9), scores(6.97))
    (line,) = floors.conclude(3000)
    assert "(6.970, they have 7.000, within 0.05): its generator knows" in line


def test_a_constant_answer_is_named_and_left() -> None:
    """ELECTRA that calls every token original: 85% are, at 0.417 nats."""
    floors = Floors(["mlm"], {})
    constant = {"constant/rtd": 0.4171, "constant_acc/rtd": 0.853, "wiki/constant/rtd": 0.4}
    flat = {"loss/rtd": 0.407, "acc/rtd": 0.853, **constant}
    assert floors.remark(Progress(tokens=9), flat) == []
    (line,) = floors.conclude(3000)
    assert "rtd: this run has not left one constant answer (0.407 nats, 85.3% right" in line
    assert "it has 0.417, 85.3%" in line
    learned = {**flat, "loss/rtd": 0.38, "acc/rtd": 0.87}
    (left,) = floors.remark(Progress(tokens=2_000_000), learned)
    assert left.startswith("rtd: left one constant answer (0.380 nats, 87.0% right")
    assert floors.remark(Progress(tokens=9), learned) == []
    assert floors.conclude(3000) == []
    few = Floors(["mlm"], {}, held_out=200)
    few.remark(Progress(tokens=9), flat)
    assert few.conclude(3000) == []


@pytest.mark.parametrize("loss", [71302.0, 21.0, math.inf, math.nan])
def test_a_run_that_exploded_is_an_error(loss: float) -> None:
    """An even guess among 3,000 tokens has 8.0 nats."""
    with pytest.raises(PlmctlError, match=r"mlm: this training has exploded.*\n  fix: "):
        end(loss)
    with pytest.raises(PlmctlError):
        end(loss, held_out=10)
    assert len(end(19.0)) == 1


def test_what_exploded_ends_with_1_and_nothing_to_go_on_with(
    tmp_path: Path, small_text: Path
) -> None:
    words = ["bert", *TINY, f"data.path={small_text}", "tokenizer.vocab_size=300", "optim.lr=30"]
    words += [f"run.dir={tmp_path}/run", "train.steps=6", "train.precision=fp32"]
    output = pretrain(*words, code=1)
    assert "this training has exploded" in output
    assert "next:" not in output
