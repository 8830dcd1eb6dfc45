"""Ensembles: means and votes by hand, what is refused, and the command with models of different
tokens.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.core.errors import UsageError
from plmctl.tasks.answers.label_sets import SetAnswer
from plmctl.tasks.calibration import LabelDecision, join_decisions
from plmctl.tasks.ensemble import elect, join
from plmctl.use.ensemble import name_members, refuse_misfit


def task(**more: Any) -> Any:
    own = {"answer": None, "layout": None, "settle": lambda joined, rows: joined}
    return SimpleNamespace(**{"name": "sst2", "names": ["a", "b"], **own, **more})


def labelled(*shares: float) -> list[list[dict[str, Any]]]:
    """One member a share: what it gives the class b."""
    return [
        [{"id": "1", "gold": "a", "guess": "ab"[p > 0.5], "probabilities": {"a": 1 - p, "b": p}}]
        for p in shares
    ]


def test_the_mean_of_probabilities_and_the_votes_of_classes() -> None:
    members = labelled(0.6, 0.6, 0.1)
    (mean,) = join(task(), members, votes=False)
    assert mean["probabilities"]["b"] == pytest.approx(1.3 / 3)
    assert (mean["guess"], mean["gold"], mean["id"]) == ("a", "a", "1")
    assert join(task(), members, votes=True)[0]["guess"] == "b"
    assert join(task(), labelled(0.9, 0.2), votes=True)[0]["guess"] == "b"  # a tie: mean 0.55


def test_choices_are_numbers() -> None:
    members = [
        [{"gold": 1, "guess": int(np.argmax(p)), "probabilities": p}]
        for p in ([0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.4, 0.35, 0.25])
    ]
    (mean,) = join(task(), members, votes=False)
    assert mean["probabilities"] == pytest.approx([1.0 / 3, 1.25 / 3, 0.25])
    assert mean["guess"] == 1
    assert join(task(), members, votes=True)[0]["guess"] == 0


def test_of_several_labels_each_has_its_own_vote() -> None:
    members = [
        [{"guess": [n for n in p if p[n] > 0.5], "probabilities": p}]
        for p in ({"a": 0.9, "b": 0.6}, {"a": 0.4, "b": 0.55}, {"a": 0.1, "b": 0.1})
    ]
    above = task(answer=SetAnswer(threshold=0.45))
    assert join(above, members, votes=False)[0]["guess"] == ["a"]
    assert join(above, members, votes=True)[0]["guess"] == ["b"]


def test_the_threshold_of_an_ensemble_is_the_mean_of_those_of_its_members() -> None:
    """As many as each above its own on average; a member without one decides at a half, and one
    that states it for the other label means one less it.
    """
    kept = [
        LabelDecision.fitted_on("dev", 1.3, 0.2, "b"),
        None,
        LabelDecision.fitted_on("test", 1.0, 0.75, "a"),
    ]
    found = join_decisions([task()] * 3, kept)
    assert found is not None
    assert found.threshold == pytest.approx((0.2 + 0.5 + 0.25) / 3)
    assert found.describe() == "threshold 0.3167 of b, fitted on dev and test"
    for shares in ((0.3, 0.3, 0.3), (0.3, 0.4, 0.3), (0.0, 0.9, 0.1)):
        above = sum(p - own for p, own in zip(shares, (0.2, 0.5, 0.25), strict=True)) >= 0
        (row,) = join(task(), labelled(*shares), votes=False, decision=found)
        assert row["guess"] == "ab"[above], shares
    (tie,) = join(task(), labelled(0.6, 0.1), votes=True, decision=found)  # mean 0.35
    assert tie["guess"] == "b"
    assert join_decisions([task()] * 2, [None, LabelDecision.fitted_on("dev", 2.0)]) is None


def test_an_ensemble_is_unsure_by_its_mean_and_not_by_its_first_member() -> None:
    """The least probability is the mean of those of the members, 0 of one without any."""
    kept = [
        LabelDecision.fitted_on("dev", sure=0.9),
        None,
        LabelDecision.fitted_on("test", sure=0.9),
    ]
    found = join_decisions([task()] * 3, kept)
    assert found is not None
    assert found.sure == pytest.approx(0.6)
    assert found.describe() == "unsure below 0.6, fitted on dev and test"
    members = labelled(0.7, 0.6, 0.6)  # mean 0.633
    members[0][0]["unsure"] = True
    for decision, unsure in ((found, False), (None, False), (LabelDecision(sure=0.7), True)):
        for votes in (False, True):
            (row,) = join(task(), members, votes=votes, decision=decision)
            assert row.get("unsure", False) == unsure


def test_the_thresholds_of_labels_that_each_are_decided() -> None:
    several = [task(answer=SetAnswer()), task(answer=SetAnswer(threshold={"a": 0.1}))]
    found = join_decisions(several, [LabelDecision.fitted_on("dev", 1.0, 0.2), None])
    assert found is not None
    assert found.threshold == pytest.approx({"a": 0.15, "b": 0.35})
    alone = join_decisions(several, [None, None])  # settings of tasks differ, too
    assert alone is not None
    assert alone.threshold == pytest.approx({"a": 0.3, "b": 0.5})
    assert join_decisions(several[:1] * 2, [None, None]) is None
    members = [[{"guess": [], "probabilities": p}] for p in ({"a": 0.1, "b": 0.3},) * 2]
    assert join(several[0], members, votes=False, decision=found)[0]["guess"] == []
    members = [[{"guess": [], "probabilities": p}] for p in ({"a": 0.2, "b": 0.3},) * 2]
    assert join(several[0], members, votes=False, decision=found)[0]["guess"] == ["a"]


def test_numbers_have_a_mean_and_no_votes() -> None:
    members = [[{"gold": 1.0, "guess": guess}] for guess in (1.0, 2.0, 6.0)]
    assert join(task(), members, votes=False) == [{"gold": 1.0, "guess": 3.0}]
    with pytest.raises(UsageError, match="no votes\n  fix: joined=mean"):
        join(task(), members, votes=True)


def test_tags_are_joined_word_by_word() -> None:
    shares = [[0.6, 0.2], [0.6, 0.9], [0.1, 0.3]]  # of "b", for two words
    members = [
        [
            {
                "words": ["x", "y"],
                "guess": ["ab"[p > 0.5] for p in own],
                "tag_probabilities": [[1 - p, p] for p in own],
            }
        ]
        for own in shares
    ]
    assert join(task(), members, votes=False) == [{"words": ["x", "y"], "guess": ["a", "a"]}]
    assert join(task(), members, votes=True)[0]["guess"] == ["b", "a"]


def answered(null: float, **scores: float) -> list[dict[str, Any]]:
    """A member with scores of texts, and of no answer."""
    best = sorted(scores, key=lambda text: -scores[text])
    return [
        {
            "id": "q",
            "golds": ["x"],
            "guess": best[0],
            "null_odds": null - scores[best[0]],
            "n_best": [{"text": text, "score": scores[text]} for text in best],
        }
    ]


def test_answers_are_joined_by_the_mean_of_their_n_best_probabilities() -> None:
    members = [answered(0.0, x=2.0, y=1.0), answered(1.0, y=3.0, z=0.0)]

    def share(scores: dict[str, float], text: str) -> float:
        total = sum(math.exp(score) for score in scores.values())
        return math.exp(scores[text]) / total if text in scores else 0.0

    known = [{"": 0.0, "x": 2.0, "y": 1.0}, {"": 1.0, "y": 3.0, "z": 0.0}]
    mean = {t: (share(known[0], t) + share(known[1], t)) / 2 for t in ("", "x", "y", "z")}
    (found,) = join(task(version=2), members, votes=False)
    assert found["guess"] == "y"
    assert [each["text"] for each in found["n_best"]] == ["y", "x", "z"]
    for each in found["n_best"]:
        assert math.exp(each["score"]) == pytest.approx(mean[each["text"]])
    assert found["null_odds"] == pytest.approx(math.log(mean[""] / mean["y"]))
    (first,) = join(task(version=1), members, votes=False)  # there is always an answer
    assert math.exp(first["n_best"][0]["score"]) == pytest.approx(
        (share({"x": 2.0, "y": 1.0}, "y") + share({"y": 3.0, "z": 0.0}, "y")) / 2
    )


def test_votes_for_answers() -> None:
    members = [answered(0.0, **{"the x": 1.0, "y": 0.9}), answered(0.0, x=1.0, y=0.9)]
    members += [answered(0.0, y=9.0)]
    (found,) = join(task(version=1), members, votes=True)
    assert found["guess"] in ("x", "the x")  # two votes, as they are the same once normalised
    empty = [answered(9.0, x=1.0), answered(9.0, y=1.0), answered(-9.0, x=9.0)]
    (none,) = join(task(version=2, null_threshold=3.0), empty, votes=True)
    assert none["null_odds"] > 3.0
    (text,) = join(task(version=2, null_threshold=3.0), empty[1:] + empty[2:], votes=True)
    assert (text["guess"], text["null_odds"] < 3.0) == ("x", True)


def test_texts_that_are_written_are_refused() -> None:
    with pytest.raises(UsageError, match="no probabilities of whole answers"):
        join(task(), [[{"guess": "a text", "golds": ["b"]}]] * 2, votes=False)


def test_equal_votes_are_decided_by_weights() -> None:
    assert elect(["a", "b", "c"], {"a": 0.1, "b": 0.5, "c": 0.4}) == "b"
    assert elect(["a", "c", "b", "a"], {"a": 0.1, "b": 0.9, "c": 0.4}) == "a"


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (task(name="rte", label_names=["a", "b"]), "two was fine-tuned on rte, one on sst2"),
        (task(answer=SetAnswer()), "two answers by .*SetAnswer, one by .*NoneType"),
        (task(label_names=["a", "c"]), r"the labels of two \(a, c\) are not those of one \(b, a\)"),
    ],
)
def test_members_of_different_tasks_or_labels_are_refused(other: Any, words: str) -> None:
    first = task(label_names=["b", "a"])
    with pytest.raises(UsageError, match=f"checkpoint: {words}\n  fix: "):
        refuse_misfit("one", "two", first, other)


def invoke(*words: object) -> Any:
    return CliRunner().invoke(make_app(), [*map(str, words)])


def test_the_command_joins_models_of_different_tokens(tmp_path: Path) -> None:
    rows = "".join(f"a {word} film\t{word}\n" for word in ("good", "bad") * 12)
    for name in ("train", "dev"):
        (tmp_path / f"{name}.tsv").write_text(f"text\tlabel\n{rows}", encoding="utf-8")
    runs = [tmp_path / "one", tmp_path / "two"]
    for run, tokenizer in zip(runs, ("char", "wordpiece"), strict=True):
        words = f"finetune task=classification task.path={tmp_path} checkpoint=null size=tiny"
        words += " size.width=16 size.inner_width=16 train.steps=2 train.eval_every=0"
        words += f" tokenizer={tokenizer} task.max_length=24 run.dir={run} seed={len(run.name)}"
        words += " tokenizer.vocab_size=24" if tokenizer == "wordpiece" else ""
        done = invoke(*words.split())
        assert done.exit_code == 0, done.output
    both = f"checkpoint=[{runs[0]},{runs[1]}]"
    done = invoke("eval", both, f"out={tmp_path / 'joined.jsonl'}", "--json")
    assert done.exit_code == 0, done.output
    found = [json.loads(line) for line in (tmp_path / "joined.jsonl").read_text().splitlines()]
    known = [
        [json.loads(line) for line in (run / "predictions/dev.jsonl").read_text().splitlines()]
        for run in runs
    ]
    for row, *own in zip(found, *known, strict=True):
        mean = sum(each["probabilities"]["good"] for each in own) / 2
        assert row["probabilities"]["good"] == pytest.approx(mean, abs=1e-5)
    answer = json.loads(done.stdout)
    assert set(answer["metrics"]) == {"one", "two", "mean of 2"}
    assert "decision" not in answer
    alone = invoke("eval", f"checkpoint=[{runs[0]}]", "task.columns.text=text", "--json")
    assert alone.exit_code == 0, alone.output
    found_alone = json.loads(alone.stdout)["metrics"]["dev"]
    assert answer["metrics"]["one"].items() <= found_alone.items()
    assert invoke("eval", f"checkpoint={runs[0]}", "calibrate=[threshold]").exit_code == 0
    again = invoke("eval", both, f"out={tmp_path / 'again.jsonl'}", "--json")
    answer = json.loads(again.stdout)
    assert answer["remarks"]["decision"].startswith("the mean of 2 models: threshold 0.5")
    other = tmp_path / "other.txt"
    other.write_text("a good film\n", encoding="utf-8")
    labelled = tmp_path / "labelled.csv"
    done = invoke("eval", both, "joined=votes", f"input={other}", f"out={labelled}")
    assert done.exit_code == 0, done.output
    assert labelled.read_text().startswith("text,id,guess,probabilities.")


def test_members_of_one_name_have_their_paths_and_others_keep_theirs() -> None:
    assert name_members(["runs/a", "old/a", "runs/b/"]) == ["runs/a", "old/a", "b"]
