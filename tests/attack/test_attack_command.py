"""`plmctl attack` on a model that learned which words are good."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from plmctl.artifacts.loading import load
from plmctl.attack.constraints import ChangedOnce
from plmctl.attack.slips import LetterSlips
from plmctl.attack.word_text import WordText
from plmctl.config.build import build
from plmctl.report.page import render_markdown
from plmctl.report.panels.attacks import mark, panel
from plmctl.report.subject import find_subject
from plmctl.tasks.classification import Classification
from plmctl.training.device.precision import choose
from plmctl.use.asked_task import describe_model
from plmctl.use.attacking import Victim
from tests.attack.plain import attack_by_importance
from tests.attack.test_slips import pairs
from tests.command import plmctl


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def open_victim(run: Path) -> tuple[Victim, Classification]:
    loaded = load(run)
    node = {**loaded.own_task(), "pooling": "first"}
    task: Classification = build(node, describe_model(loaded, ()), path="task")
    precision = choose("fp32", next(loaded.model.parameters()).device)
    examples = task.read("dev")
    return Victim(loaded, task, precision, examples, field="text", batch_size=1), task


@pytest.mark.slow  # test_searches.py compares with that loop, too
def test_texts_are_those_of_a_loop_over_one_text_at_a_time(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "letters.jsonl"
    said = plmctl(
        *(
            "attack",
            f"checkpoint={run}",
            "rows=12",
            "attack_candidates=letters",
            f"out={out}",
            "--json",
        ),
        "constraint=[changed_once]",
    )
    rows, metrics = read(out), json.loads(said)["metrics"]["dev"]
    victim, _ = open_victim(run)
    slips, once = LetterSlips(seed=0), ChangedOnce()

    def words(text: WordText, number: int) -> list[str]:
        return slips.propose([(text, number)])[0]

    assert len(rows) == 12
    fooled = 0
    for number, row in enumerate(rows):
        example = victim.examples[number]

        def model(text: str, number: int = number) -> np.ndarray:
            return victim.score([(number, text)])[0]

        gold = victim.names.index(example.label)
        if int(model(row["text"]).argmax()) != gold:
            assert row["result"] == "wrong before"
            continue
        text, changed, asked = attack_by_importance(
            row["text"], gold, model, words, once.allows, lambda first, now: True
        )
        assert (row["attacked"], row["queries"]) == (text, asked)
        assert (row["result"] == "fooled") is changed
        fooled += changed
        for place, before, after, _ in row["changes"]:
            assert WordText.of(row["text"]).word(place) == before
            assert WordText.of(text).word(place) == after
    assert fooled
    attacked = [row for row in rows if row["result"] != "wrong before"]
    assert metrics["accuracy"] == pytest.approx(len(attacked) / 12, abs=1e-4)
    assert metrics["accuracy under attack"] == pytest.approx(
        (len(attacked) - fooled) / 12, abs=1e-4
    )
    shares = [len(row["changes"]) / row["words"] for row in rows if row["result"] == "fooled"]
    assert metrics["changed words"] == pytest.approx(sum(shares) / len(shares), abs=1e-3)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "words",
    [
        ["attack_candidates.least=-1", "constraint.similarity.least=-1"],
        ["attack_candidates=masked_lm", "writer={beside}/writer", "constraint=[stop_words,share]"],
        [
            "attack_candidates=keyboard",
            "constraint=[]",
            "attack_search=beam",
            "attack_search.rounds=2",
        ],
    ],
)
def test_other_parts_attack_too(run: Path, tmp_path: Path, words: list[str]) -> None:
    given = [word.format(beside=run.parent) for word in words]
    out = tmp_path / "rows.jsonl"
    plmctl("attack", f"checkpoint={run}", "rows=6", f"out={out}", *given)
    rows = [row for row in read(out) if row["result"] != "wrong before"]
    assert any(row["changes"] for row in rows)
    stop = {"this", "is"}
    if "attack_candidates=keyboard" not in words:
        assert not any(before in stop for row in rows for _, before, *_ in row["changes"])


def test_a_stricter_similarity_leaves_less(run: Path, tmp_path: Path) -> None:
    counts = []
    for least in (-1.0, 1.0):
        out = tmp_path / f"{least}.jsonl"
        how = [f"constraint.similarity.least={least}", "attack_candidates=letters", f"out={out}"]
        said = plmctl("attack", f"checkpoint={run}", "rows=6", *how)
        counts.append(sum(len(row.get("changes", [])) for row in read(out)))
        assert ("unchanged: no word of any text was changed" in said) is (counts[-1] == 0)
    assert counts[0] > counts[1] == 0


def test_speed_is_the_texts_that_the_model_read_by_the_seconds(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(perf_counter=iter([100.0, 104.0]).__next__)
    monkeypatch.setattr("plmctl.commands.attack.time", clock)
    how = ["attack_candidates=letters", "rows=2", f"out={tmp_path / 'rows.jsonl'}", "--json"]
    said = json.loads(plmctl("attack", f"checkpoint={run}", *how))
    assert said["rows"] == 2
    assert said["texts that the model read"] > 0
    assert said["texts a second"] == said["texts that the model read"] / 4


def test_another_attack_leaves_the_results_of_an_earlier_one(run: Path, tmp_path: Path) -> None:
    found = {}
    for name in ("letters", "keyboard"):
        how = [f"attack_candidates={name}", "constraint=[]", "rows=3", f"out={tmp_path}"]
        plmctl("attack", f"checkpoint={run}", *how)
        found[name] = (tmp_path / "dev.jsonl").read_text()
    assert (tmp_path / "earlier" / "dev-1.jsonl").read_text() == found["letters"]
    assert found["letters"] != found["keyboard"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["field=texd"], "one of text"),
        (["attack_candidates=masked_lm"], "a masked language model"),
        (["writer=runs/x"], "these candidates come from elsewhere"),
        (["out=x.xlsx"], "a folder, or a file"),
        (["constraint.similarity.least=2"], "a cosine"),
    ],
)
def test_mistakes_are_told_before_work(run: Path, words: list[str], reason: str) -> None:
    said = plmctl("attack", f"checkpoint={run}", *words, code=2)
    assert reason in " ".join(said.split())


def write_chinese(folder: Path) -> Path:
    text = "text\tlabel\n这部电影很好看\tgood\n这部电影不好看\tbad\n"
    file = folder / "dev.tsv"
    file.write_text(text, encoding="utf-8")
    return file


def test_candidates_that_propose_nothing_are_refused(run: Path, tmp_path: Path) -> None:
    """A Chinese character has no slips, and none of its keys lies on a keyboard."""
    words = [f"checkpoint={run}", f"task.path={write_chinese(tmp_path).parent}", "constraint=[]"]
    for name in ("letters", "keyboard"):
        said = plmctl("attack", *words, f"attack_candidates={name}", code=2)
        assert "attack_candidates: these propose nothing for any word of these texts" in said
        assert "fix: attack_candidates=letters segment=jieba" in said


def test_words_of_a_segmenter_are_attacked_and_marked(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plmctl.text.segment.find", lambda *_: pairs)
    words = [f"checkpoint={run}", f"task.path={write_chinese(tmp_path).parent}", "constraint=[]"]
    out = tmp_path / "rows.jsonl"
    plmctl("attack", *words, "attack_candidates=letters", "segment=jieba", f"out={out}")
    rows = read(out)
    assert [row["words"] for row in rows] == [4, 4]
    changed = {**rows[0], "changes": [[0, "这部", "部这", 0], [2, "很好", "好", 4]]}
    assert mark(changed) == "⟦这部 → 部这⟧电影⟦很好 → 好⟧看"


def test_a_segmenter_that_is_none_is_told(run: Path) -> None:
    said = plmctl("attack", f"checkpoint={run}", "segment=jeiba", code=2)
    assert "segment='jeiba': must be jieba" in said
    assert "fix: segment=jieba" in said


def test_a_report_marks_the_changed_words(run: Path) -> None:
    words = ["attack_candidates=letters", "constraint=[changed_once]"]
    plmctl("attack", f"checkpoint={run}", "rows=12", *words)
    file = run / "attack" / "dev.jsonl"
    row = min(
        (row for row in read(file) if row["result"] == "fooled"),
        key=lambda row: len(row["changes"]) / row["words"],
    )
    page = render_markdown(panel(find_subject([run])), charts="")
    _, before, after, _ = row["changes"][0]
    assert mark({**row, "changes": [change[:3] for change in row["changes"]]}) == mark(row)
    assert f"⟦{before} → {after}⟧" in page
    assert mark({**row, "changes": []}) == row["text"]
    file.unlink()
    assert panel(find_subject([run])) == []
