"""Losses of unlike models are told apart: in reports, studies, sweeps and comparisons."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from plmctl.analysis.likeness import find_role, list_unlike, name_role
from plmctl.cli.app import make_app
from plmctl.config.build import plain
from plmctl.config.compose import compose
from plmctl.report.sweeps import describe_end
from plmctl.study.results import Results
from plmctl.study.study import PRETRAIN, Metric
from plmctl.study.unlike import list_unlike_arms
from plmctl.tasks.scores import written
from tests.report import fabricated


def config(recipe: str, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = plain(compose("pretrain", recipe, ["size=tiny", *words]))
    return found


BERT, ELECTRA, GPT = config("bert"), config("electra"), config("gpt")


@pytest.mark.parametrize("kind", ["loss", "acc", "perplexity", "bits_per_byte", "valid/nll"])
def test_a_generators_loss_is_no_models(kind: str) -> None:
    metric = f"{kind}/mlm"
    assert (find_role(BERT, metric), find_role(ELECTRA, metric)) == ("model", "generator")
    assert name_role(BERT, metric, ["model", "generator"]) == metric
    assert name_role(ELECTRA, metric, ["generator"]) == f"{metric} (of the generator)"
    (line, *_) = list_unlike({"a": BERT, "b": ELECTRA, "c": GPT}, {metric: "ab"})
    assert f"{metric} of b is that of a generator" in line  # and not of c, which has none
    assert find_role(ELECTRA, "grad_norm") == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], ""),
        (["optim.lr=1e-5"], ""),
        (["tokenizer=byte_bpe"], "tokenizers differ"),
        (["data.path=other.txt"], "held-out text differ"),
        (["data.valid_share=0.2"], "held-out text differ"),
        (["eval.noise.token_mask.rate=0.3"], "held-out masks differ"),
        (["noise.token_mask.rate=0.3"], ""),  # validation has masks of its own
    ],
)
def test_what_makes_losses_unlike(words: list[str], said: str) -> None:
    lines = list_unlike({"a": BERT, "b": config("bert", *words)}, {"valid/loss/mlm": "ab"})
    assert said in lines[0] if said else lines == [], lines
    assert list_unlike({"a": BERT, "b": config("bert", *words)}, {"tokens_per_second": "ab"}) == []


def test_a_study_leaves_the_loss_of_a_helper_out_of_the_column() -> None:
    common = {"loss", "start/grad_norm/0", "loss/mlm"}
    arms = {
        name: SimpleNamespace(pretrain=own, arm=SimpleNamespace(pretrain=True), measured=measured)
        for name, own, measured in (
            ("bert", BERT, common),
            ("electra", ELECTRA, common | {"loss/rtd"}),
            ("other", copy.deepcopy(BERT), common),
        )
    }
    cells = [SimpleNamespace(arm=arm, seed=0, pretrain=arm, jobs=[arm]) for arm in arms]
    plan: Any = SimpleNamespace(
        study=SimpleNamespace(baseline="bert", evals={}), arms=arms, cells=cells
    )
    results = Results(plan, {}, lambda name: Path(name))
    results._value = lambda metric, cell: 2.0  # type: ignore[method-assign]
    metric = Metric(PRETRAIN, "loss/mlm")
    assert [len(results.values(metric, arm)) for arm in arms] == [1, 0, 1]
    assert "of 'electra' is the loss of a generator" in results.problems[0]
    whole = Metric(PRETRAIN, "loss")  # a sum of other losses
    assert [len(results.values(whole, arm)) for arm in arms] == [1, 0, 1]
    assert "the sum of mlm, rtd by electra (weight=1, rtd_weight=50)" in results.problems[-1]
    assert len(results.values(Metric(PRETRAIN, "start/grad_norm/0"), "electra")) == 1
    plan.study.metrics = {"masked": metric, "all": whole}
    lines = list_unlike_arms(plan.study, plan.arms)
    assert [line.partition(" of ")[0] for line in lines] == ["loss/mlm", "loss"]
    arms["other"].measured = {"loss", "loss/lm"}
    lacking = list_unlike_arms(plan.study, plan.arms)
    assert "loss/mlm is no metric of 'other': it is left out of the column" in lacking


def test_a_whole_loss_is_named_by_its_summands() -> None:
    light = config("bert", "objective.nsp.weight=0")
    heavy = config("bert", "objective.nsp.weight=2")
    assert find_role(light, "loss") == "mlm (weight=1)"  # no weight: no summand
    assert find_role(heavy, "valid/loss") == "mlm (weight=1), nsp (weight=2)"
    roles = [find_role(each, "loss") for each in (light, heavy)]
    assert name_role(light, "loss", roles) == "loss of mlm (weight=1)"
    assert name_role(light, "loss", roles[:1]) == "loss"
    (line,) = list_unlike({"a": light, "b": heavy}, {"valid/loss": "ab", "valid/loss/mlm": "ab"})
    assert line.startswith("valid/loss is a sum of unlike losses")


def test_a_report_has_a_row_for_each(tmp_path: Path) -> None:
    from plmctl.report.panels.curves import panel
    from plmctl.report.subject import find_subject

    folders = [
        fabricated.run(tmp_path / name, config={**fabricated.CONFIG, "objective": own["objective"]})
        for name, own in (("bert", BERT), ("electra", ELECTRA))
    ]
    text = str(panel(find_subject(folders)))
    assert "(of the generator)" in text
    assert "does not compare with the others" in text
    alone = str(panel(find_subject(folders[1:])))
    assert "'valid/loss/mlm (of the generator)'" in alone
    assert "'valid/loss/mlm'" not in alone


def test_a_sweep_says_it(tmp_path: Path) -> None:
    jobs = []
    for number, own in enumerate((BERT, ELECTRA)):
        made = {**fabricated.CONFIG, "heads": own["heads"], "objective": own["objective"]}
        folder = fabricated.run(tmp_path / str(number), config=made)
        jobs.append(
            {"job": number, "dir": str(folder), "code": 0, "metrics": {"valid/loss/mlm": 2.0}}
        )
    assert any("job 1 is that of a generator" in line for line in describe_end(jobs))
    assert describe_end([jobs[0], jobs[0]]) == []


def test_perplexities_of_other_tokens_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def score(rows: Any) -> dict[str, float]:
        return written.score(rows, ["perplexity", "rouge1"], tokenize="13a", lowercase=False)[0]

    monkeypatch.setattr("plmctl.report.compare.score_by_kind", lambda *_: score)
    for name, tokens in (("a", 9), ("same", 9), ("other", 12)):
        rows = [
            {"id": str(n), "golds": ["a b c"], "guess": "a", "nll": 3.0 + n, "tokens": tokens}
            for n in range(3)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, compared in (("same", True), ("other", False)):
        files = [str(tmp_path / "a.jsonl"), str(tmp_path / f"{name}.jsonl")]
        words = ["compare", *files, "--as", "texts", "--samples", "100"]
        done = CliRunner().invoke(make_app(), words)
        assert done.exit_code == 0, done.output
        assert ("perplexity" in done.stdout) is compared
        assert ("perplexity is left out" in done.stderr) is not compared
        asked = CliRunner().invoke(make_app(), [*words, "--metric", "perplexity"])
        assert "perplexity" in asked.stdout
