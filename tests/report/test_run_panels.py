"""The panels on runs, each from a folder made by hand; runs that are going, cut off, empty;
folders that are no runs.
"""

from __future__ import annotations

import json
import math
import re
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from plmctl.analysis.runs import RunLog, find_standing
from plmctl.cli.app import make_app
from plmctl.config.compose import compose
from plmctl.config.saved import write_spec
from plmctl.data.held_out import HeldText
from plmctl.report import study_panels, sweeps
from plmctl.report.page import Block, Chart, Code, Folded, Heading, Paragraph, TableBlock
from plmctl.report.panels import (
    answers,
    benchmarks,
    classes,
    curves,
    differences,
    overview,
    results,
    scores,
    spread,
    tags,
    throughput,
)
from plmctl.report.panels.benchmarks import CLUE, GLUE, SUPERGLUE, bert_average, clue_average
from plmctl.report.studies import StudyFolder
from plmctl.report.subject import Subject, find_subject
from plmctl.report.write import load_panels, make_blocks
from plmctl.storage.job_events import JobEvents
from tests.report import fabricated, parsed

LABELS = {
    "_target_": "plmctl.tasks.classification.Classification",
    "name": "sst2",
    "metrics": ["accuracy"],
    "path": "no/where",
}


def report(*words: str) -> Any:
    return CliRunner().invoke(make_app(), ["report", *words])


def tables(blocks: list[Block]) -> list[TableBlock]:
    return [block for block in blocks if isinstance(block, TableBlock)]


def words(blocks: list[Block]) -> str:
    return " ".join(block.text for block in blocks if isinstance(block, Paragraph))


def guess(number: int, gold: str, sure: float, other: str = "b") -> dict[str, Any]:
    """One prediction of the class `other` with probability `sure`."""
    return {
        "id": str(number),
        "gold": gold,
        "guess": other,
        "probabilities": {"a": 1 - sure, "b": sure} if other == "b" else {"a": sure, "b": 1 - sure},
    }


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return fabricated.run(tmp_path / "a run")


SUBJECTS = [Subject(), Subject(study=StudyFolder(Path("x"), {}, None))]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_panels_are_found_without_a_list(subject: Subject) -> None:
    found = load_panels(subject)
    home = Path(study_panels.__file__) if subject.study else Path(overview.__file__).parent
    files = home.glob("*.py") if home.is_dir() else [home]
    declared = sum(file.read_text().count("\n@panel_of(") for file in files)
    assert len({id(panel) for panel in found}) == len(found) == declared > 4
    assert [panel.order for panel in found] == sorted(panel.order for panel in found)


def test_every_panel_is_silent_where_it_has_nothing_to_say() -> None:
    for panel in load_panels(Subject()):
        assert panel(Subject()) == []


def test_page_of_a_run(run: Path, tmp_path: Path) -> None:
    done = report(str(run), "--out", str(tmp_path / "out" / "my report.md"))
    assert done.exit_code == 0, done.output
    text, html = ((tmp_path / "out" / f"my report.{kind}").read_text() for kind in ("md", "html"))
    for line in (
        "| valid/loss/mlm | 1.827 |",
        "| optim.lr | 0.001 |",
        "| objective | MLM |",
        "(<my report_files/loss.svg>)",
    ):
        assert line in text
    page = parsed.parse(html)
    assert page.headings[0] == "Report: a run"
    assert "a run: pretraining, bert, finished, 10 updates" in text
    assert page.tags.count("svg") == text.count("![")  # what is drawn in one is drawn in the other
    assert len(page.tables) == len(re.findall(r"^\| --- ", text, re.MULTILINE))
    assert all(heading in text for heading in page.headings)


def test_html_alone_by_default(run: Path, tmp_path: Path) -> None:
    assert report(str(run), "--out", str(tmp_path / "r.html")).stdout.split() == [
        str(tmp_path / "r.html")
    ]
    assert not (tmp_path / "r.md").exists()
    assert report(str(run), "--out", str(tmp_path / "s.html"), "--markdown").exit_code == 0
    assert (tmp_path / "s.md").is_file()


@pytest.mark.parametrize("option", ["-o", "--out"])
def test_a_folder_takes_the_page_under_its_usual_name(
    run: Path, tmp_path: Path, option: str
) -> None:
    for folder in (f"{tmp_path}/new/", str(tmp_path)):  # the second one is there
        done = report(str(run), option, folder)
        assert done.stdout == f"{Path(folder) / 'report.html'}\n"


def draw_results(*folders: Path) -> tuple[list[str], str]:
    """(the texts of the pictures of the first part, its words)."""
    blocks = results.panel(find_subject(folders))
    trees = [ElementTree.fromstring(block.svg) for block in blocks if isinstance(block, Chart)]
    lines = [block.text for block in blocks if isinstance(block, Code)]
    return [t.text or "" for tree in trees for t in tree.iter()], " ".join([words(blocks), *lines])


def test_a_page_begins_with_how_good_how_sure_and_what_next(tmp_path: Path) -> None:
    folder = fabricated.tuned(tmp_path / "t", LABELS, {"dev": {"accuracy": 0.8}})
    result = {"metrics": {"dev": {"accuracy": 0.8}}, "examples": {"dev": 50}}
    result |= {"intervals": {"dev": {"accuracy": [0.67, 0.89]}}}
    (folder / "result.json").write_text(json.dumps(result))
    for floor, said in (
        (0.7, "reaches words (0.7000)"),
        (0.5, "is outside"),
        (0.9, "is no better"),
    ):
        known = {"dev": {"words": {"accuracy": floor}}}
        (folder / "baselines.json").write_text(json.dumps(known))
        drawn, text = draw_results(folder)
        assert {"t: 0.8 (0.67 to 0.89)", f"words: {floor}"} <= set(drawn)
        assert said in text
        assert "on dev, 95% interval 0.67 to 0.89, of 50 examples" in text
        assert f"plmctl predict {folder}" in text
        assert ("train.epochs" in text) == (floor == 0.9)
    curve = [{"step": step, "valid/accuracy": value} for step, value in enumerate((0.5, 0.8, 0.7))]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in curve))
    text = draw_results(folder)[1]
    assert "Update 1 of 2 was the best" in text
    assert "Another optim.lr or a checkpoint" in text  # not more updates, which did not help
    assert "train.epochs" not in text
    losses = [{**line, "valid/accuracy": 0.8, "valid/loss": 3 - line["step"]} for line in curve]
    losses.append({"step": 3, "valid/accuracy": 0.8, "valid/loss": 1.5})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in losses))
    assert "Update 2 of 3 was the best" in draw_results(folder)[1]  # as the trainer keeps it
    kept = {**result, "checkpoint": "runs/t/checkpoints/step-1"}
    (folder / "result.json").write_text(json.dumps(kept))
    assert "Update 1 of 3 was the best" in draw_results(folder)[1]
    titles = [panel.title for panel in load_panels(Subject())]
    order = ("Result", "Confusion", "Most confidently wrong", "Curves", "Throughput", "Settings")
    assert sorted(order, key=titles.index) == list(order)


def test_a_pretraining_begins_with_its_loss_beside_what_counting_reaches(run: Path) -> None:
    floor = {"step": 1, "valid/unigram/mlm": 6.5}
    with (run / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(floor) + "\n")
    drawn, text = draw_results(run)
    assert {"a run: 1.827", "frequencies of tokens: 6.5"} <= set(drawn)
    assert "perplexity 6.22; better than frequencies of tokens (6.5)." in text  # e to the 1.827
    assert "How sure" not in text  # nobody knows how much was held out
    HeldText(12, 5400).write(run)
    assert "How sure: measured on 12 documents, 5,400 tokens of text that" in draw_results(run)[1]
    assert "plmctl finetune 'checkpoint=" in text


def test_the_headline_of_electra_is_the_models_and_has_no_perplexity_of_yes_and_no(
    tmp_path: Path,
) -> None:
    electra = {"_target_": "plmctl.objectives.electra.Electra"}
    config = {**fabricated.CONFIG, "objective": {"electra": electra}}
    run = fabricated.run(tmp_path / "run", config=config)
    ends = {"loss/mlm": 6.0, "perplexity/mlm": 403.4, "unigram/mlm": 6.2, "loss/rtd": 0.407}
    ends |= {"constant/rtd": 0.4171, "acc/rtd": 0.853, "constant_acc/rtd": 0.853}
    file = run / "metrics.jsonl"
    file.write_text(json.dumps({"step": 1, **{f"valid/{n}": x for n, x in ends.items()}}) + "\n")
    _, text = draw_results(run)
    own, other = text.index("loss/rtd 0.4070 nats; better than one"), text.index("loss/mlm (of the")
    assert own < other
    assert "one constant answer (0.4171): hardly anything is learned yet." in text
    assert "(of the generator) 6.0000 nats, perplexity 403.40; better than freq" in text
    with file.open("a") as more:
        more.write(json.dumps({"step": 2, **{f"valid/{n}": x for n, x in ends.items()}}) + "\n")
    drawn = [b for b in curves.panel(find_subject([run])) if isinstance(b, Chart)]
    floors = ["one constant answer (rtd)" in block.svg for block in drawn]
    assert dict(zip([block.name for block in drawn], floors, strict=True))["acc"]


def test_several_runs_begin_with_the_best_one(tmp_path: Path) -> None:
    levels = {"a": 3.0, "b": 1.0, "c": 2.0}
    folders = [fabricated.run(tmp_path / name, level=levels[name]) for name in levels]
    found = results.panel(find_subject(folders))
    assert "valid/loss/mlm: the best is b (1.827), then c (2.827)." in words(found)
    assert "How sure: these are single runs" in words(found)
    (code,) = (block.text for block in found if isinstance(block, Code))
    assert f"checkpoint={folders[1]}" in code
    tasks = [fabricated.tuned(tmp_path / n, LABELS, {"dev": {"accuracy": 0.5}}) for n in "xy"]
    for folder, ends in zip(tasks, ([0.4, 0.6], [0.3, 0.7]), strict=True):
        result = json.loads((folder / "result.json").read_text())
        result["intervals"] = {"dev": {"accuracy": ends}}
        (folder / "result.json").write_text(json.dumps(result))
    blocks = results.panel(find_subject(tasks))
    assert Code(f"plmctl compare {tasks[0]} {tasks[1]}") in blocks


def test_runs_scored_on_different_examples_have_no_order(tmp_path: Path) -> None:
    """As `compare` aligns them: by ids and gold labels, in any order."""
    same = [guess(0, "a", 0.9), guess(1, "b", 0.9)]
    parts = {"x": same, "y": same[::-1], "other gold": [same[0], guess(1, "a", 0.9)]}
    parts["more"] = [*same, guess(2, "a", 0.9)]
    runs = {
        name: fabricated.tuned(tmp_path / name, LABELS, {"dev": {"accuracy": 0.5}}, rows)
        for name, rows in parts.items()
    }
    equal = "dev: the best are equal (0.5): x, y."
    assert equal in words(results.panel(find_subject([runs["x"], runs["y"]])))
    for other in ("other gold", "more"):
        subject = find_subject([runs["x"], runs[other]])
        found = results.panel(subject)
        assert "the best" not in words(found)
        assert f"dev of x: 2 examples; dev of {other}: {len(parts[other])} ex" in words(found)
        (code,) = (block.text for block in found if isinstance(block, Code))
        assert [line.split()[1] for line in code.splitlines()] == ["eval", "eval", "compare"]
        assert "sst2, dev: scored on different examples" in words(scores.panel(subject))
        titles = [str(chart.svg) for chart in found if isinstance(chart, Chart)]
        assert [other in svg for svg in titles] == [False, True]  # a picture for each
    everyone = words(results.panel(find_subject([*runs.values()])))
    assert "sst2, dev of x, y: the best are equal (0.5): x, y" in everyone
    shares = {"a": 0.1, "b": 1.0, "c": 1.0}
    for name, share in shares.items():
        rows = parts["more" if name == "c" else "x"]
        values = {"dev": {"accuracy": share}}
        fabricated.tuned(tmp_path / name, LABELS, values, rows, train={"share": share})
    found_scores = spread.collect_scores(find_subject([tmp_path / name for name in shares]).runs)
    assert not found_scores  # b and c are no two seeds of one share


@pytest.mark.parametrize(
    ("tested", "said"),
    [("a", "dev: the best is b (0.8), then a (0.7)"), ("abc", "test: the best is a (0.9), then b")],
)
def test_runs_are_ranked_on_a_split_that_all_have(tmp_path: Path, tested: str, said: str) -> None:
    """A run that also has a score on test keeps its place among the others on dev."""
    dev = {"a": 0.7, "b": 0.8, "c": 0.6}
    test = {"a": 0.9, "b": 0.5, "c": 0.4}
    runs = []
    for name in dev:
        both = {"dev": {"accuracy": dev[name]}}
        both |= {"test": {"accuracy": test[name]}} if name in tested else {}
        runs.append(fabricated.tuned(tmp_path / name, LABELS, both))
    found = results.panel(find_subject(runs))
    assert f"sst2, {said}" in words(found)
    assert "do not compare" not in words(found)
    assert len([block for block in found if isinstance(block, Chart)]) == 1


def test_losses_of_different_texts_have_no_order(tmp_path: Path) -> None:
    texts = {"a": "one.txt", "b": "two.txt"}
    folders = [
        fabricated.run(tmp_path / name, config={"data": {"path": path}})
        for name, path in texts.items()
    ]
    found = words(results.panel(find_subject(folders)))
    assert "the best" not in found
    assert "valid/loss/mlm: held-out text differ: losses are not of one question: no or" in found


def test_a_score_that_no_draw_changes_says_so(tmp_path: Path) -> None:
    folder = fabricated.tuned(tmp_path / "t", LABELS, {"dev": {"accuracy": 0.0}})
    result = json.loads((folder / "result.json").read_text())
    (folder / "result.json").write_text(json.dumps({**result, "intervals": {"dev": {}}}))
    assert "How sure: accuracy 0 has no interval" in words(results.panel(find_subject([folder])))


def test_a_target_has_the_levels_of_its_own_loss(tmp_path: Path) -> None:
    folders = [fabricated.run(tmp_path / name) for name in "ab"]
    more = {"valid/unigram/mlm": 6.5, "valid/reached/mlm": 5.5, "loss/nsp": 0.6}
    for folder in folders:
        with (folder / "metrics.jsonl").open("a") as file:
            file.writelines(json.dumps({"step": step, **more}) + "\n" for step in (11, 12))
    found = curves.panel(find_subject(folders))
    shown = {block.name: block.svg for block in found if isinstance(block, Chart)}
    for text in ("frequencies of tokens (mlm): 6.5", "reached elsewhere (mlm)"):
        assert text in shown["loss-loss-mlm"]
        assert text not in shown["loss-loss-nsp"]


def test_the_interval_of_an_accuracy_is_shaded(tmp_path: Path) -> None:
    folder, shades = fabricated.run(tmp_path / "a"), []
    for more in ({}, {"valid/low/pairs": 0.45, "valid/high/pairs": 0.55}):
        with (folder / "metrics.jsonl").open("a") as file:
            records = [{"step": step, "valid/acc/pairs": 0.5, **more} for step in (11, 12)]
            file.writelines(json.dumps(record) + "\n" for record in records)
        blocks = curves.panel(find_subject([folder]))
        (chart,) = (b for b in blocks if isinstance(b, Chart) and b.name == "acc")
        shades.append(chart.svg.count("<polygon"))
        assert (curves.ENDS in words(blocks)) == bool(more)
    assert shades == [0, 1]


def test_settings_that_differ(run: Path, tmp_path: Path) -> None:
    other = fabricated.run(tmp_path / "b", config={"optim": {"lr": 0.1}, "run": {"dir": "y"}})
    (table,) = tables(differences.panel(find_subject([run, other])))
    assert table.head == ["setting", "a run", "b"]
    assert [list(row) for row in table.rows] == [
        ["optim._target_", "AdamW", ""],
        ["optim.lr", "0.001", "0.1"],
    ]
    assert "same settings" in words(
        differences.panel(find_subject([run, fabricated.run(tmp_path / "c")]))
    )


def test_a_run_from_a_checkpoint_has_its_tokenizer(tmp_path: Path) -> None:
    tokenizer = {"tokenizer": {"kind": "bpe", "vocab_size": 8192}}
    new = fabricated.run(tmp_path / "a", config=tokenizer)
    start = {"checkpoint": "runs/x", "task": {"path": "sst2"}, "train": {"steps": 3}}
    tuned = fabricated.run(tmp_path / "b", config={**tokenizer, **start})
    shown = [
        {
            row[0]
            for table in tables(differences.choices(find_subject([each])))
            for row in table.rows
        }
        for each in (new, tuned)
    ]
    assert shown[0] >= {"tokenizer.kind", "tokenizer.vocab_size"}
    assert shown[1] >= {"checkpoint", "task.path"}
    assert not [path for path in shown[1] if path.startswith("tokenizer")]


def test_many_settings_of_one_run_alone_are_folded(run: Path, tmp_path: Path) -> None:
    task = {f"setting{n:02}": n for n in range(differences.FEW + 1)}
    other = fabricated.run(
        tmp_path / "b", config={**RunLog.read_started(run).config, "position": task, "seed": 7}
    )
    _, shared, folded = differences.panel(find_subject([run, other]))
    assert isinstance(shared, TableBlock)
    assert [row[0] for row in shared.rows] == ["seed"]
    assert isinstance(folded, Folded)
    assert [list(row) for row in tables(folded.blocks)[0].rows] == [
        ["position", "null", ""],
        *([f"position.{name}", "", str(n)] for name, n in task.items()),
    ]


def test_throughput_leaves_out_the_start(run: Path) -> None:
    (table,) = tables(throughput.panel(find_subject([run])))
    assert table.rows == [["a run", "1,006", "2.0%", "30.0%", "1,000", "0.00"]]


def test_curves_of_few_and_of_many_runs(tmp_path: Path) -> None:
    folders = [fabricated.run(tmp_path / f"r{number}") for number in range(5)]
    few = next(
        block for block in curves.panel(find_subject(folders[:1])) if isinstance(block, Chart)
    )
    assert [
        name in few.svg for name in (">loss = loss/mlm<", ">valid/loss/mlm<", ">valid/loss<")
    ] == [True, True, False]
    many = [block for block in curves.panel(find_subject(folders)) if isinstance(block, Chart)]
    assert [chart.name for chart in many[:2]] == ["loss-loss", "loss-valid-loss"]
    assert ">r0 = r1 = r2 = r3 = r4<" in many[1].svg  # they were made equal
    lines = [
        {"step": step, "loss": 2.0, "loss/class": 2.001, "valid/loss": 1.0, "valid/accuracy": 0.5}
        for step in (1, 2)
    ]
    (folders[0] / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folders[0] / "config.yaml").write_text("task: {name: sst2, metrics: [accuracy]}")
    loss, score = (
        block for block in curves.panel(find_subject(folders[:1])) if isinstance(block, Chart)
    )
    assert [f">{name}<" in loss.svg for name in ("loss", "loss/class", "valid/loss")] == [
        *(True, False, True)  # the only term is the loss, but for the last digits
    ]
    assert ">valid/accuracy<" in score.svg


def test_a_run_that_is_still_going(run: Path) -> None:
    log = RunLog.read_started(run)
    log.config["train"] = {"steps": 40}
    found = find_standing(log)
    assert (found.state, "25% of 40 updates" in found.why) == ("still going", True)
    later = find_standing(log, now=time.time() + 3600)
    assert later.state == "stopped"
    assert f"plmctl pretrain --resume 'run.dir={run}'" in later.why
    log.config["train"] = {"epochs": 3}
    assert find_standing(log, now=time.time() + 3600).state == "unknown"
    log.config["train"] = {"tokens": 1000}
    assert find_standing(log).state == "finished"
    log.series["words"] = [(10, 750.0)]
    for words, state in ((750, "finished"), (1000, "stopped")):
        log.config["train"] = {"words": words}
        found = find_standing(log, now=time.time() + 3600)
        assert found.state == state
    assert "75% of 1,000 words" in found.why


def test_a_run_that_was_cut_off(run: Path, tmp_path: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 11, "loss": 3')
    subject = find_subject([run])
    assert "half written" in words(overview.panel(subject))
    assert subject.runs[0].log.step == 10
    assert report(str(run), "--out", str(tmp_path / "r.html")).exit_code == 0


def test_a_run_without_numbers(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "config.yaml").write_text("seed: 1\ntrain: {steps: 3}\n")
    done = report(str(tmp_path / "new"), "--attention", "0.0", "--out", str(tmp_path / "r.html"))
    assert done.exit_code == 0, done.output
    text = (tmp_path / "r.html").read_text()
    parsed.parse(text)
    assert "no metric has been logged yet" in text
    assert "new: not measured" in text
    assert "Not drawn:" in text


def test_broken_predictions_and_results_are_passed_over(run: Path) -> None:
    (run / "result.json").write_text('{"task": "sst2", "metr')
    (run / "predictions").mkdir()
    (run / "predictions" / "dev.jsonl").write_text(
        json.dumps(guess(0, "a", 0.9)) + '\n{"id": "1", "go'
    )
    (only,) = find_subject([run]).runs
    assert only.result is None
    assert [len(rows) for rows in only.predictions.values()] == [1]


@pytest.mark.parametrize(
    ("given", "code", "answer"),
    [
        (["nowhere"], 3, "there is no such folder"),
        (["file"], 3, "is a file"),
        (["."], 3, "fix: plmctl report 'a run'"),
        (["empty"], 3, "neither a run (metrics.jsonl) nor a study (study.json)"),
        (["study", "a run"], 2, "is a study: a report shows one study, or runs"),
        (["a run", "--out", "r.pdf"], 2, "fix: --out r.html"),
        (["a run", "--out", "r.pdf"], 2, "--figures FOLDER: each picture as PDF"),
        (["a run", "--card", "empty"], 2, "fix: --card empty/README.md"),
        (["a run", "--attention", "2"], 2, "layer.head"),
        (["a run", "--sentence", "x"], 2, "fix: --attention 0.0"),
        (["a run", "--probe", "pos"], 2, "NAME=FILE"),
        (["a run", "--probe", "pos=x:1"], 2, "two columns"),
        (["a run", "--sensitivity", "8,9"], 2, "--sensitivity 9: numbers of bits, 2 to 8"),
        (["a run", "--sensitivity", "1"], 2, "fix: --sensitivity 8,4"),
        (["study", "--sensitivity", "4"], 2, "--sensitivity: of runs, not of a study"),
        (["a run", "--fact", "license=mit"], 2, "--card"),
        (["a run", "--card", "c.md", "--fact", "licence=mit"], 2, "one of license, language, name"),
        (["study", "--card", "c.md"], 2, "of one run"),
        (["a run", "--card", "report.html"], 2, "the page itself is written there"),
        (["a run", "--out", "r.md", "--card", "./r.md"], 2, "the page itself is written there"),
        (["a run", "--probe", "pos=absent"], 3, "--probe pos=absent: no such file"),
        (["a run", "--word", "bank=gone"], 3, "--word bank=gone: no such file"),
        (["study", "--probe", "pos=x"], 2, "--probe: of runs, not of a study"),
        (["study", "--attention", "0.0"], 2, "fix: plmctl report study/jobs/JOB/run"),
        (["a run", "--out", "file/r.html"], 3, "cannot write"),
    ],
)
def test_mistakes(
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: list[str],
    code: int,
    answer: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    fabricated.study(tmp_path / "study", arms=2, seeds=1, steps=3)
    done = report(*given)
    assert done.exit_code == code, done.output
    assert answer in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        ("report.html", []),
        ("r.md", ["--out", "r.md"]),
        ("r.html", ["--out", "r.md"]),
        ("r.md", ["--out", "r.html", "--markdown"]),
        ("README.md", ["--card", "README.md"]),
    ],
)
def test_a_file_that_plmctl_did_not_write_stays(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theirs: str, words: list[str]
) -> None:
    """A page or a card of ours is renewed."""
    monkeypatch.chdir(tmp_path)
    file = Path(theirs)
    file.write_text("my own notes\n", encoding="utf-8")
    done = report("a run", *words)
    assert done.exit_code == 2
    assert f"{theirs} is there already, and plmctl did not write it\n  fix: # an" in done.stderr
    assert file.read_text(encoding="utf-8") == "my own notes\n"
    assert not [page for page in tmp_path.glob("*.*") if page.name != theirs]
    file.unlink()
    for _ in range(2):
        done = report("a run", *words)
        assert (done.exit_code, done.stderr) == (0, "")


def test_scores_side_by_side(tmp_path: Path) -> None:
    one = fabricated.tuned(tmp_path / "one", LABELS, {"dev": {"accuracy": 0.9}})
    two = fabricated.tuned(tmp_path / "two", LABELS, {"dev": {"accuracy": 0.8, "loss": 0.5}})
    (table,) = tables(scores.panel(find_subject([one, two])))
    assert table.rows == [
        ["sst2", "dev", "accuracy", "0.9", "0.8"],
        ["sst2", "dev", "loss", "", "0.5"],
    ]


BERT_BASE = {  # Devlin et al., 2019, table 1, in percent, and its average
    "mnli": {"accuracy": 84.6, "accuracy, mismatched": 83.4},
    "qqp": {"f1": 71.2},
    "qnli": {"accuracy": 90.5},
    "sst2": {"accuracy": 93.5},
    "cola": {"matthews": 52.1},
    "stsb": {"spearman": 85.8},
    "mrpc": {"f1": 88.9},
    "rte": {"accuracy": 66.4},
}


def test_averages_as_published() -> None:
    assert bert_average(BERT_BASE) == pytest.approx(79.6, abs=0.05)
    assert GLUE.average_scores(BERT_BASE) is None  # one metric of two is not the task's score
    whole = [GLUE.score(task, values) for task, values in GLUE.people.items()]
    # of people, with WNLI: as published
    assert sum(value or math.nan for value in whole) / 9 == pytest.approx(87.1, abs=0.05)
    without = [value for task, value in zip(GLUE.people, whole, strict=True) if task != "wnli"]
    assert GLUE.average_scores(GLUE.people) == pytest.approx(
        sum(value or math.nan for value in without) / 8
    )


def test_glue_of_runs_from_one_checkpoint(tmp_path: Path) -> None:
    folders = []
    for task, human in GLUE.people.items():
        plain = {name: value / 200 for name, value in human.items() if "mismatched" not in name}
        metrics = {"dev": plain} | (
            {"dev_mismatched": {"accuracy": 0.464}} if task == "mnli" else {}
        )
        folders.append(
            fabricated.tuned(
                tmp_path / task, {**LABELS, "name": task}, metrics, checkpoint="runs/bert"
            )
        )
    again = fabricated.tuned(
        tmp_path / "again",
        {**LABELS, "name": "rte"},
        {"dev": {"accuracy": 0.5}},
        checkpoint="runs/bert",
    )
    blocks = benchmarks.glue(find_subject([*folders, again]))
    (table,) = tables(blocks)
    rows = {row[0]: row[2:] for row in table.rows}
    assert rows["mnli"] == ["46.0 / 46.4", "92.0 / 92.8"]
    assert rows["rte"] == [f"{(46.8 + 50) / 2:.1f}", "93.6"]
    assert rows["average"] == [
        f"{(GLUE.average_scores(GLUE.people) or 0) / 2 + 1.6 / 8:.1f}",
        "85.9",
    ]
    assert tables(benchmarks.glue(find_subject(folders[:2])))[0].rows[-1][2] == "2 of 8 tasks"


def test_glue_over_the_time_of_a_pretraining(tmp_path: Path) -> None:
    """Fine-tunings from several checkpoints of a run are a curve for each task."""
    given = [  # checkpoint, task, scores
        ("wiki/checkpoints/step-20", "sst2", {"accuracy": 0.8}),
        ("wiki/checkpoints/step-20", "sst2", {"accuracy": 0.9}),
        ("wiki/checkpoints/step-100", "sst2", {"accuracy": 0.95}),
        ("wiki/checkpoints/step-100", "mrpc", {"f1": 0.8, "accuracy": 0.7}),
        ("other", "sst2", {"accuracy": 0.6}),
        ("once/step-5", "sst2", {"accuracy": 0.5}),
    ]
    folders = [
        fabricated.tuned(tmp_path / f"{n}", {"name": task}, {"dev": values}, checkpoint=start)
        for n, (start, task, values) in enumerate(given)
    ]
    subject = find_subject(folders)
    assert benchmarks.follow_pretraining(GLUE, subject.runs) == {
        "wiki": {
            "sst2": {20: [pytest.approx(80), pytest.approx(90)], 100: [pytest.approx(95)]},
            "mrpc": {100: [pytest.approx(75)]},
        }
    }
    blocks = benchmarks.glue(subject)
    pictures = {block.name: block.svg for block in blocks if isinstance(block, Chart)}
    assert list(pictures) == ["glue-over-time-sst2", "glue-over-time-mrpc", "glue-2", "glue-3"]
    assert 'data-values="20,85 100,95"' in pictures["glue-over-time-sst2"]


def test_the_spread_of_seeds_by_the_size_of_the_training_set(tmp_path: Path) -> None:
    given = [(0.1, 0.5), (0.1, 0.7), (0.1, 0.6), (1.0, 0.8), (1.0, 0.82)]
    task = {**LABELS, "name": "rte", "metrics": ["accuracy"]}
    folders = [
        fabricated.tuned(
            tmp_path / str(n),
            task,
            {"dev": {"accuracy": value}},
            train={"share": share},
            checkpoint="runs/bert",
        )
        for n, (share, value) in enumerate(given)
    ]
    _, _, mean, deviation, table = spread.panel(find_subject(folders))
    assert isinstance(mean, Chart)
    assert isinstance(deviation, Chart)
    assert 'data-values="0.1,0.6 1,0.81"' in mean.svg
    assert 'data-values="0.1,0.1 1,0.01414"' in deviation.svg
    assert isinstance(table, TableBlock)
    assert [row[2:] for row in table.rows] == [
        ["10.0%", "3", "0.6000", "0.1000", "0.5000", "0.7000"],
        ["100.0%", "2", "0.8100", "0.0141", "0.8000", "0.8200"],
    ]
    runs = find_subject(folders).runs
    rates = [
        replace(run, group=f"optim.lr={n % 2} train.share={given[n][0]}")
        for n, run in enumerate(runs)
    ]
    assert spread.collect_scores(rates) == {  # of another rate is no other seed
        ("rte", "accuracy", "runs/bert optim.lr=0", (0, "")): {0.1: [0.5, 0.6], 1.0: [0.82]}
    }
    assert spread.panel(find_subject(folders[:3])) == []  # one size alone
    assert spread.panel(find_subject(folders[2:4])) == []  # a seed each


def superglue(*values: float) -> dict[str, dict[str, float]]:
    """Scores in the order of the columns of table 3: CB, MultiRC and ReCoRD have two."""
    names = [(task, metric) for task, metrics in SUPERGLUE.people.items() for metric in metrics]
    found: dict[str, dict[str, float]] = {}
    for (task, metric), value in zip(names, values, strict=True):
        found.setdefault(task, {})[metric] = value
    return found


@pytest.mark.parametrize(
    ("values", "average"),
    [  # Wang et al., 2019, table 3: the most frequent class, BERT, BERT++, people
        ((62.3, 21.7, 48.4, 50.0, 61.1, 0.3, 33.4, 32.5, 50.3, 50.0, 65.1), 47.1),
        ((77.4, 75.7, 83.6, 70.6, 70.0, 24.0, 72.0, 71.3, 71.6, 69.5, 64.3), 69.0),
        ((79.0, 84.7, 90.4, 73.8, 70.0, 24.1, 72.0, 71.3, 79.0, 69.5, 64.3), 71.5),
        ((89.0, 95.8, 98.9, 100.0, 81.8, 51.9, 91.7, 91.3, 93.6, 80.0, 100.0), 89.8),
    ],
)
def test_superglues_average_as_published(values: tuple[float, ...], average: float) -> None:
    scores = superglue(*values)
    assert SUPERGLUE.average_scores(scores) == pytest.approx(average, abs=0.051)
    del scores["multirc"]["exact"]
    assert SUPERGLUE.average_scores(scores) is None


def test_superglue_of_runs(tmp_path: Path) -> None:
    folders = [
        fabricated.tuned(
            tmp_path / task,
            {**LABELS, "name": task},
            {"dev": {name: value / 100 for name, value in people.items()} | {"mean": 0.1}},
            checkpoint="runs/bert",
        )
        for task, people in SUPERGLUE.people.items()
    ]
    (table,) = tables(benchmarks.superglue(find_subject(folders)))
    rows = {row[0]: row[2:] for row in table.rows}
    assert rows["multirc"] == ["81.8 / 51.9", "81.8 / 51.9"]
    assert rows["average"] == ["89.8", "89.8"]
    assert benchmarks.superglue(find_subject([])) == []


@pytest.mark.parametrize(
    ("values", "average"),
    [  # PaddleNLP, model_zoo/ernie-3.0: ERNIE 2.0 large, RoBERTa-wwm-ext large, ERNIE 3.0 base
        ((59.67, 62.29, 89.14, 76.41, 84.10, 79.69, 71.48, 85.52, 78.12, 83.82), 77.03),
        ((59.33, 62.02, 90.79, 76.00, 83.67, 78.81, 70.58, 85.72, 75.26, 83.88), 76.61),
        ((58.26, 61.56, 86.18, 75.93, 82.63, 80.10, 70.71, 84.26, 77.88, 83.02), 76.05),
    ],
)
def test_clues_averages_as_published(
    values: tuple[float, ...], average: float, tmp_path: Path
) -> None:
    scores = {
        task: {name: value}
        for (task, (name,)), value in zip(CLUE.tasks.items(), values, strict=True)
    }
    assert clue_average(scores) == pytest.approx(average, abs=0.011)
    assert CLUE.average_scores(scores) == pytest.approx(sum(values[:9]) / 9)
    folders = [
        fabricated.tuned(
            tmp_path / task,
            {**LABELS, "name": task, "metrics": ["f1", *own]},
            {"dev": {"f1": 0.99} | {name: value / 100 for name, value in own.items()}},
            checkpoint="runs/bert",
        )
        for task, own in scores.items()
    ]
    blocks = benchmarks.clue(find_subject(folders))
    (table,) = tables(blocks)
    assert table.head == ["task", "metric", "runs/bert"]
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["cmrc2018"] == ["exact", f"{values[6]:.1f}"]
    assert rows["average with CMNLI"][1] == f"{sum(values) / 10:.1f}"
    (picture,) = (block for block in blocks if isinstance(block, Chart))
    assert "Scores, runs/bert" in picture.svg
    assert tables(benchmarks.clue(find_subject(folders[:2])))[0].rows[-2][2] == "2 of 9 tasks"
    result = json.loads((folders[1] / "result.json").read_text())
    few = {**result, "skipped": {"few/train_0.json": 0, "few/dev_0.json": 0}}
    (folders[1] / "result.json").write_text(json.dumps(few))
    assert tables(benchmarks.clue(find_subject(folders[:2])))[0].rows[-2][2] == "1 of 9 tasks"
    assert not benchmarks.clue(find_subject(folders[1:2]))


def test_one_sheet_has_the_result_one_confusion_and_the_limits(tmp_path: Path) -> None:
    folder = fabricated.tuned(tmp_path / "t", LABELS, {"test": {"accuracy": 0.5}})
    (folder / "predictions").mkdir()
    for split in ("dev", "test"):
        rows = [guess(0, "a", 0.9), guess(1, "b", 0.8)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "predictions" / f"{split}.jsonl").write_text(text)
    page = tmp_path / "sheet.html"
    assert report(str(folder), "--brief", "--out", str(page)).exit_code == 0
    headings = ["Report: t", "Result", "Confusion", "t, test", "Limits"]
    assert parsed.parse(page.read_text()).headings == headings
    assert "with the seed 3" in page.read_text()
    both = replace(find_subject([folder, folder]), brief=True)
    assert all(
        panel.title not in ("Confusion", "Limits") or not panel(both) for panel in load_panels(both)
    )
    refused = report(str(folder), "--brief", "--attention", "0.0")
    assert refused.exit_code == 2
    assert "leave out --brief" in refused.output


def test_confusion(tmp_path: Path) -> None:
    rows = [guess(0, "a", 0.9, "a"), guess(1, "a", 0.8), guess(2, "b", 0.7), guess(3, "b", 0.6)]
    folder = fabricated.tuned(tmp_path / "r", LABELS, {"dev": {"accuracy": 0.75}}, rows)
    (table,) = tables(classes.confusion(find_subject([folder])))
    assert table.head == ["gold \\ guess", "a", "b", "recall"]
    assert table.rows == [
        ["a", "1", "1", "50.0%"],
        ["b", "0", "2", "100.0%"],
        ["precision", "100.0%", "66.7%", "accuracy 75.0%"],
    ]
    assert table.shade == [[0.0, 0.5, 0.5], [0.0, 0.0, 1.0], []]


def test_each_class_has_its_scores(tmp_path: Path) -> None:
    rows = [guess(0, "a", 0.9, "a"), guess(1, "a", 0.8), guess(2, "a", 0.8)]
    rows += [guess(number, "b", 0.6) for number in range(3, 8)]
    task = {**LABELS, "class_weights": None}
    found = find_subject([fabricated.tuned(tmp_path / "r", task, {"dev": {}}, rows)])
    blocks = classes.per_class(found)
    (table,) = tables(blocks)
    assert table.head == ["class", "precision", "recall", "F1", "rows"]
    assert table.rows == [
        ["a", "100.0%", "33.3%", "50.0%", "3"],
        ["b", "71.4%", "100.0%", "83.3%", "5"],
    ]
    said = words(blocks)
    assert "Fewer than 20 rows, so that one row changes much: a (3), b (5)." in said
    assert "Most rows are missed of: a (33.3%). task.class_weights=balanced" in said
    even = [guess(0, "a", 0.8), guess(1, "b", 0.6)]  # no class is rare
    found = find_subject([fabricated.tuned(tmp_path / "e", task, {"dev": {}}, even)])
    assert "class_weights" not in words(classes.per_class(found))
    task["class_weights"] = "balanced"
    found = find_subject([fabricated.tuned(tmp_path / "s", task, {"dev": {}}, rows)])
    assert "class_weights" not in words(classes.per_class(found))


def test_many_classes_show_what_is_confused_most(tmp_path: Path) -> None:
    names = [f"c{n}" for n in range(30)]
    rows = [
        {
            "id": str(n),
            "gold": "c1",
            "guess": "c2" if n else "c3",
            "probabilities": dict.fromkeys(names, 1 / 30),
        }
        for n in range(3)
    ]
    folder = fabricated.tuned(tmp_path / "r", LABELS, {"dev": {}}, rows)
    assert tables(classes.confusion(find_subject([folder])))[0].rows == [
        ["c1", "c2", "2"],
        ["c1", "c3", "1"],
    ]
    missed = [{**rows[0], "gold": name, "guess": "c0"} for name in names]
    folder = fabricated.tuned(tmp_path / "m", LABELS, {"dev": {}}, missed)
    said = words(classes.per_class(find_subject([folder])))
    assert "c10 (0.0%) and 19 more." in said
    assert "(1) and 20 more." in said


def test_most_confidently_wrong_with_their_texts(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "dev.tsv").write_text(
        "sentence\tlabel\nfine\ta\nworst | of all\ta\nbad\tb\nless\ta\n"
    )
    node = {
        **LABELS,
        "path": str(tmp_path / "data"),
        "columns": {"text": "sentence", "label": "label"},
        "max_length": 8,
        "reader": {
            "_target_": "plmctl.tasks.readers.tables.Table",
            "splits": {"train": ["train.tsv"], "dev": ["dev.tsv"]},
        },
    }
    rows = [guess(0, "a", 0.9, "a"), guess(1, "a", 0.99), guess(2, "b", 0.9), guess(3, "a", 0.6)]
    model = {
        "model": {"_target_": "plmctl.models.encoder.Encoder"},
        "pattern": {"_target_": "plmctl.attention.patterns.base.Full"},
    }
    folder = fabricated.tuned(tmp_path / "r", node, {"dev": {"accuracy": 0.5}}, rows, **model)
    (table,) = tables(classes.mistakes(find_subject([folder])))
    assert table.rows == [
        ["1", "a", "b", "99.0%", "worst | of all"],
        ["3", "a", "b", "60.0%", "less"],
    ]
    (tmp_path / "data" / "dev.tsv").write_text("sentence\tlabel\nanother\ta\n")
    blocks = classes.mistakes(find_subject([folder]))
    assert "without the texts" in words(blocks)
    assert tables(blocks)[0].rows == [["1", "a", "b", "99.0%"], ["3", "a", "b", "60.0%"]]


def test_several_labels_for_a_text_are_neither_confused_nor_ranked(tmp_path: Path) -> None:
    rows = [
        {"id": "0", "gold": ["a"], "guess": ["a", "b"], "probabilities": {"a": 0.9, "b": 0.7}},
        {"id": "1", "gold": ["b"], "guess": [], "probabilities": {"a": 0.1, "b": 0.2}},
    ]
    subject = find_subject([fabricated.tuned(tmp_path / "r", LABELS, {"dev": {}}, rows)])
    assert tables(classes.mistakes(subject)) == []
    assert tables(classes.confusion(subject)) == []


def test_scores_furthest_off(tmp_path: Path) -> None:
    rows = [{"id": str(n), "gold": 2.0, "guess": 2.0 + n} for n in range(3)]
    folder = fabricated.tuned(tmp_path / "r", LABELS, {"dev": {}}, rows)
    assert tables(classes.mistakes(find_subject([folder])))[0].rows == [
        ["2", "2.00", "4.00", "2.00"],
        ["1", "2.00", "3.00", "1.00"],
    ]
    assert "wrong" not in words(classes.mistakes(find_subject([folder])))  # no score is exact


def test_span_errors(tmp_path: Path) -> None:
    sentence = ["EU", "rejects", "Peter", "Smith", "in", "Rome", "."]
    gold = ["B-ORG", "O", "B-PER", "I-PER", "O", "B-LOC", "O"]
    found = ["B-LOC", "B-ORG", "B-PER", "O", "O", "O", "O"]
    rows = [
        {"id": "0", "words": sentence, "gold": gold, "guess": found},
        {"id": "1", "words": sentence, "gold": gold, "guess": gold},
    ]
    folder = fabricated.tuned(tmp_path / "r", {**LABELS, "name": "conll2003"}, {"dev": {}}, rows)
    subject = find_subject([folder])
    types, errors = tables(tags.panel(subject))
    (examples,) = tables(tags.sentences(subject))
    assert tags.panel.brief
    assert types.rows == [[kind, "2", "2", "1", "50.0%", "50.0%"] for kind in ("LOC", "ORG", "PER")]
    assert [row[:2] for row in errors.rows] == [
        ["another type", "1"],
        ["other bounds", "1"],
        ["missed", "1"],
        ["made up", "1"],
    ]
    assert examples.rows == [
        [
            "[EU]ORG rejects [Peter Smith]PER in [Rome]LOC .",
            "[EU]LOC [rejects]ORG [Peter]PER Smith in Rome .",
        ]
    ]


def test_answer_errors(tmp_path: Path) -> None:
    def row(number: int, golds: list[str], guess: str, odds: float) -> dict[str, Any]:
        return {"id": str(number), "golds": golds, "guess": guess, "null_odds": odds, "n_best": []}

    rows = [
        row(0, ["the cat"], "cat", -3),
        row(1, ["a red cat"], "red dog", -2),
        row(2, ["cat"], "dog", -1),
        row(3, [], "dog", -4),
        row(4, ["cat"], "cat", 2),
        row(5, [], "dog", 2),
    ]
    folder = fabricated.tuned(
        tmp_path / "r", {**LABELS, "name": "squad_v2", "version": 2}, {"dev": {}}, rows
    )
    kinds, worst = tables(answers.panel(find_subject([folder])))
    assert [line[0] for line in kinds.rows] == list(answers.KINDS)
    assert all(line[1] == "1" for line in kinds.rows)
    assert [line[:2] for line in worst.rows] == [
        ["should be empty", "(none)"],
        ["overlap", "a red cat"],
        ["elsewhere", "cat"],
        ["left empty", "cat"],
    ]


def test_runs_of_one_name_have_what_differs_in_their_paths(tmp_path: Path) -> None:
    folders = [fabricated.run(tmp_path / name / "run") for name in ("a", "b")]
    assert [run.name for run in find_subject(folders).runs] == ["a", "b"]  # and not /run


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Two noises, three seeds of each; their folders are numbers."""
    for job in range(6):
        noise, seed = ("token_mask", "span_mask")[job // 3], job % 3
        part = {
            "_target_": "x.Mask",
            **{f"{noise}{number}": number for number in range(differences.FEW)},
        }
        config = {"noise": {noise: part}, "seed": seed}
        folder = fabricated.run(
            tmp_path / "swept" / str(job),
            steps=4,
            level=1 + noise.startswith("s") + seed / 10,
            config=config,
        )
        varied = [f"noise=[{noise}]", f"seed={seed}"]
        record = {
            "job": job,
            "overrides": ["optim.lr=1", *varied],
            "varied": varied,
            "metrics": {},
            "code": 0,
            "dir": "x",
        }
        (folder / "job.json").write_text(json.dumps(record))
        JobEvents(folder.parent).write("finished", folder.name, record=record)
    return tmp_path / "swept"


def test_the_jobs_of_a_sweep_are_called_by_what_it_varied(sweep: Path) -> None:
    subject = find_subject([sweep])
    names = [
        f"noise=[{noise}] seed={seed}" for noise in ("token_mask", "span_mask") for seed in range(3)
    ]
    assert [run.name for run in subject.runs] == names
    assert [run.name for run in find_subject([sweep / "0", sweep / "4"]).runs] == [
        names[0],
        names[4],
    ]
    _, shown, folded = differences.panel(subject)
    assert isinstance(shown, TableBlock)
    assert [list(row) for row in shown.rows] == [
        ["noise", *["token_mask"] * 3, *["span_mask"] * 3],
        ["seed", *"012", *"012"],
    ]
    assert isinstance(folded, Folded)
    assert make_blocks(subject)[0] == Heading("Report: 6 runs", 1)


def test_jobs_that_varied_other_settings_have_parallel_names(tmp_path: Path) -> None:
    """As those of a sweep that has grown: every name has the same settings in the same order."""
    of_jobs = {
        "a": (["optim.lr=1", "seed=3"], ["optim.lr=1"]),
        "b": (["seed=4", "optim.lr=2"], ["seed=4", "optim.lr=2"]),
        "c": (["noise.rate=0.3", "optim.lr=2"], ["+noise.rate=0.3"]),
    }
    jobs = []
    for name, (words, varied) in of_jobs.items():
        config = {"seed": 5, "optim": {"lr": 1}, "noise": {"rate": 0.15} if name != "b" else {}}
        folder = fabricated.run(tmp_path / "swept" / name, steps=2, config=config)
        job = {"job": len(jobs), "overrides": words, "varied": varied, "metrics": {}, "code": 0}
        jobs.append({**job, "dir": str(folder)})
        (folder / "job.json").write_text(json.dumps(jobs[-1]))
    names = [
        "optim.lr=1 noise.rate=0.15 seed=3",
        "optim.lr=2 noise.rate=- seed=4",
        "optim.lr=2 noise.rate=0.3 seed=5",
    ]
    subject = find_subject([tmp_path / "swept" / name for name in of_jobs])
    assert [run.name for run in subject.runs] == names
    assert [run.group for run in subject.runs] == [name.partition(" seed")[0] for name in names]
    assert [row[1] for row in sweeps.make_table(jobs)[1]] == names


def test_a_part_that_other_jobs_vary_has_its_name(tmp_path: Path) -> None:
    """A sweep that grew by `optim=` had shown `optim=-` for the jobs of before."""
    words = ["size=tiny", "optim=lamb", "noise=[token_mask,token_shuffle]"]
    spec = compose("pretrain", "bert", words)
    write_spec(spec, tmp_path)
    job = {"dir": str(tmp_path), "overrides": ["train.clip=2"]}
    keys = ("optim", "noise", "position", "train.clip", "optim.lr", "train", "nothing")
    found = {key: sweeps.find_value(job, key) for key in keys}
    assert found == {
        "optim": "lamb",
        "noise": "[token_mask, token_shuffle]",
        "position": "learned",
        "train.clip": "2",
        "optim.lr": str(spec.optim["lr"]),
        "train": "-",
        "nothing": "-",
    }
    assert sweeps.find_value(job, "model") == "Encoder"  # the class of several files


def test_seeds_of_a_sweep_are_one_curve_in_a_band(sweep: Path) -> None:
    chart = next(block for block in curves.panel(find_subject([sweep])) if isinstance(block, Chart))
    tree = ElementTree.fromstring(chart.svg)
    shown = [
        line.find("{*}title").text for line in tree.iter("{http://www.w3.org/2000/svg}polyline")
    ]
    assert shown == [f"noise=[{noise}] (3)" for noise in ("token_mask", "span_mask")]
    line, shade = (
        next(tree.iter(f"{{http://www.w3.org/2000/svg}}{kind}")) for kind in ("polyline", "polygon")
    )
    points, edge = (
        [tuple(map(float, p.split(","))) for p in each.get("points").split()]
        for each in (line, shade)
    )
    assert len(edge) == 2 * len(points) == 8
    for (x, y), (high_x, high), (low_x, low) in zip(
        points, edge[:4], reversed(edge[4:]), strict=True
    ):
        assert x == high_x == low_x
        assert high < y < low  # pixels count downwards
        # levels are 0, 0.1 and 0.2 above the first
        assert y == pytest.approx((high + low) / 2, abs=0.11)


def test_models_without_pretraining_stand_below_the_scores(tmp_path: Path) -> None:
    folder = fabricated.run(tmp_path / "a", config={**fabricated.CONFIG, "task": LABELS})
    (folder / "result.json").write_text(json.dumps({"metrics": {"dev": {"accuracy": 0.9}}}))
    known = {"dev": {"majority": {"accuracy": 0.5}, "words": {"accuracy": 0.75}}}
    (folder / "baselines.json").write_text(json.dumps(known))
    _, without = tables(scores.panel(find_subject([folder])))
    assert [row[2:] for row in without.rows] == [
        ["majority", "accuracy", "0.5"],
        ["words", "accuracy", "0.75"],
    ]


def test_settings_have_the_warm_up_that_a_short_run_made(tmp_path: Path) -> None:
    schedule = {"_target_": "x.Linear", "warmup_steps": 100, "warmup_limit": 0.1}
    config = {**fabricated.CONFIG, "schedule": schedule, "train": {"steps": 340}}
    subject = find_subject([fabricated.run(tmp_path / "run", config=config)])
    (table,) = tables(differences.choices(subject))
    assert ["warm-up", "34 of 340 updates"] in table.rows


def test_a_loss_elsewhere_is_drawn_for_the_runs_that_have_it(tmp_path: Path) -> None:
    """No recipe has said what a generator reaches."""
    electra = {"electra": {"_target_": "plmctl.objectives.electra.Electra"}}
    folders = [fabricated.run(tmp_path / "masked")]
    config = {**fabricated.CONFIG, "objective": electra}
    folders.append(fabricated.run(tmp_path / "electra", config=config))
    with (folders[0] / "metrics.jsonl").open("a") as file:
        file.writelines(json.dumps({"step": n, "valid/reached/mlm": 2.0}) + "\n" for n in (11, 12))
    drawn = {b.name: b.svg for b in curves.panel(find_subject(folders)) if isinstance(b, Chart)}
    having = {name for name, svg in drawn.items() if "reached elsewhere" in svg}
    assert having == {"loss-loss-mlm", "loss-valid-loss-mlm"}


STEPS = (10.0, 20.0, 30.0)


@pytest.mark.parametrize(
    ("scores", "losses", "wanted"),
    [
        ((0.5, 0.6, 0.7), (0.9, 0.8, 0.7), "longer training may help"),
        ((0.5, 0.7, 0.7), (0.9, 0.8, 0.7), "update 20 had the same score"),
        ((0.5, 0.6, 0.7), (0.9, 0.6, 0.7), "the loss was lowest at update 20"),
        ((0.5, 0.8, 0.7), (0.9, 0.6, 0.7), "Update 20 of 30 was the best"),
    ],
)
def test_the_last_evaluation_is_the_best_one_alone(
    monkeypatch: pytest.MonkeyPatch, scores: Any, losses: Any, wanted: str
) -> None:
    curves = {"acc": scores, "loss": losses}
    series = {f"valid/{name}": [*zip(STEPS, c, strict=True)] for name, c in curves.items()}
    run: Any = SimpleNamespace(log=SimpleNamespace(series=series), result=None)
    monkeypatch.setattr(results, "_is_larger_better", lambda *_: True)
    line, early = results._judge_length(run, "acc")
    assert wanted in line
    assert early == (wanted[0] == "U")
