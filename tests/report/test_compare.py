"""`plmctl compare`: whose predictions are read, what is refused, and the table."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from plmctl.analysis.paired import find_tests
from plmctl.analysis.runs import RunLog
from plmctl.analysis.scored import ScoredFiles, keep_scored
from plmctl.cli.app import make_app
from plmctl.config.build import build
from plmctl.core.errors import DataError
from plmctl.report import predicted
from plmctl.report.card import make_card
from plmctl.report.compare import align
from plmctl.report.predicted import ColumnNames, Predicted, find_common, find_group, read_predicted
from plmctl.storage.atomic import write_json
from plmctl.storage.settings_file import to_yaml
from plmctl.tasks.predictions import write_predictions
from plmctl.tasks.scores.below import FILE as BASELINES
from plmctl.tasks.scores.below import TESTS, UNBEATEN, folder_of
from plmctl.tasks.scores.swaps import SwapTest
from plmctl.use.answering import AnsweredSplit
from plmctl.use.simple_models import compare_simple
from tests.command import plmctl
from tests.report import fabricated

CLASSES = {
    "_target_": "plmctl.tasks.classification.Classification",
    "name": "tickets",
    "reader": {"_target_": "plmctl.tasks.readers.tables.Table", "splits": {"dev": ["dev.tsv"]}},
    "columns": {"text": "text", "label": "label"},
    "max_length": 8,
    "metrics": ["accuracy"],
    "path": "nowhere",
}
GOLD = ["pos", "neg", "pos", "neg", "pos", "pos", "neg", "neg"]
LEFT = ["pos", "pos", "neg", "neg", "neg", "pos", "pos", "neg"]
RIGHT = ["pos", "neg", "pos", "neg", "pos", "pos", "pos", "neg"]


def invoke(*words: object) -> Any:
    return CliRunner().invoke(make_app(), ["compare", *map(str, words)])


def write(file: Path, guesses: list[Any], golds: list[Any] = GOLD, ids: Any = None) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = zip(ids or range(len(golds)), golds, guesses, strict=True)
    lines = [json.dumps({"id": str(id), "gold": g, "guess": p}) for id, g, p in rows]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def compared(*words: object) -> dict[str, Any]:
    result = invoke(*words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_two_files_of_classes(tmp_path: Path) -> None:
    files = write(tmp_path / "a.jsonl", LEFT), write(tmp_path / "b.jsonl", RIGHT)
    found = compared(*files)
    accuracy = found["metrics"]["accuracy"]
    assert (accuracy["first"], accuracy["second"]) == (4 / 8, 7 / 8)
    assert accuracy["difference"] == pytest.approx(3 / 8)
    # three answers differ, all for the better: 2 of 8 swaps are as uneven
    assert (accuracy["p"], accuracy["swaps"]) == (2 / 8, None)
    assert (accuracy["test"], accuracy["correction"]) == ("swaps, exact", "not corrected")
    assert found["mcnemar"]["test"] == "McNemar's test, exact"
    assert accuracy["low"] <= 3 / 8 <= accuracy["high"]
    assert found["mcnemar"]["first"] == 0
    assert found["mcnemar"]["second"] == 3
    table = invoke(*files, "--positive", "pos").output
    assert "macro_f1" in table
    assert "+0.3750" in table
    assert "McNemar" in table
    assert " f1 " in table


def test_one_answer_to_all_rows_is_named(tmp_path: Path) -> None:
    files = write(tmp_path / "a.jsonl", LEFT), write(tmp_path / "b.jsonl", ["pos"] * 8)
    told = invoke(*files).output
    assert "b gives the answer 'pos' to all 8 rows" in told
    assert "a gives" not in told
    assert list(compared(*files)["one_answer"]) == ["b"]
    assert "one_answer" not in compared(files[0], files[0])


def test_the_order_of_rows_does_not_count(tmp_path: Path) -> None:
    back = range(len(GOLD) - 1, -1, -1)
    a = write(tmp_path / "a.jsonl", LEFT)
    b = write(tmp_path / "b.jsonl", RIGHT[::-1], GOLD[::-1], back)
    assert compared(a, b)["metrics"]["accuracy"]["second"] == 7 / 8


def test_a_table_of_someone_else(tmp_path: Path) -> None:
    rows = "".join(f"{n},{g},{p}\n" for n, (g, p) in enumerate(zip(GOLD, RIGHT, strict=True)))
    (tmp_path / "b.csv").write_text(f"uid,label,ours\n{rows}", encoding="utf-8")
    words = ["--gold", "label", "--guess", "ours", "--id", "uid", "--metric", "accuracy"]
    found = compared(tmp_path / "b.csv", tmp_path / "b.csv", *words)
    assert list(found["metrics"]) == ["accuracy"]
    assert found["metrics"]["accuracy"]["p"] == 1


@pytest.mark.parametrize(
    ("gold", "guess", "kind", "metric"),
    [
        ("1.5", "1.2", "numbers", "pearson"),
        ('"[""B-X"", ""O""]"', '"[""B-X"", ""O""]"', "tags", "f1"),
        ("1", "1", "classes", "accuracy"),
    ],
)
def test_what_stands_in_a_table(
    gold: str, guess: str, kind: str, metric: str, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(f"gold,guess\n{gold},{guess}\n" * 1, encoding="utf-8")
    found = compared(tmp_path / "a.csv", tmp_path / "a.csv", "--samples", "100")
    assert found["scored_as"] == kind
    assert metric in found["metrics"]


def test_a_run_is_scored_as_its_task(tmp_path: Path) -> None:
    task = {**CLASSES, "name": "cola", "metrics": ["matthews"]}
    runs = []
    for name, guesses in (("a", LEFT), ("b", RIGHT)):
        folder = fabricated.run(tmp_path / name, config={**fabricated.CONFIG, "task": task})
        write(folder / "predictions/dev.jsonl", guesses)
        runs.append(folder)
    found = compared(*runs)
    assert found["scored_as"] == "task cola"
    assert list(found["metrics"]) == ["matthews"]
    result = invoke(*runs, "--split", "test")
    assert result.exit_code == 3
    assert "there are those of dev" in result.output
    assert "--split dev" in result.output
    assert f"fix: plmctl eval {runs[0]} split=test" in " ".join(result.output.split())


def test_questions_are_compared_by_their_answers(tmp_path: Path) -> None:
    rows = [{"id": "q", "golds": ["the house", "a home"], "guess": "house"}]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found = compared(file, file)
    assert found["scored_as"] == "answers"
    assert found["metrics"]["exact"]["first"] == 100
    assert (found["mcnemar"]["first"], found["mcnemar"]["exact"]) == (0, 1.0)
    assert compared(file, file, "--as", "texts")["mcnemar"] is None


@pytest.mark.parametrize(
    ("ids", "golds", "words"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 9], GOLD, ["1 only in", ": 7;", ": 9"]),
        (None, ["neg", *GOLD[1:]], ["another gold label", "(of 0: 'neg', not 'pos')"]),
        ([0, 0, 2, 3, 4, 5, 6, 7], GOLD, ["the id 0 stands in it twice"]),
    ],
)
def test_other_examples_are_refused(
    ids: Any, golds: list[str], words: list[str], tmp_path: Path
) -> None:
    a, b = write(tmp_path / "a.jsonl", LEFT), write(tmp_path / "b.jsonl", RIGHT, golds, ids)
    result = invoke(a, b)
    assert result.exit_code == 3
    assert all(word in result.output for word in [*words, str(b), "fix: "])


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        ('{"id": 1, "gold": "a"}\n', "x.jsonl", "x.jsonl:1: no column guess; found id, gold"),
        ('{"gold": null, "guess": "a"}\n', "x.jsonl", "x.jsonl:1: it has no gold label"),
        ("[1]\n", "x.jsonl", "x.jsonl:1: a JSON object is needed"),
        ('{"gold"\n', "x.jsonl", "x.jsonl:1: not JSON"),
        ("gold,guess\na,b,c\n", "x.csv", "x.csv:2: 3 columns, where the first line names 2"),
        ("label,guess\na,b\n", "x.csv", "no column gold; found label, guess"),
        ("gold,guess\n", "x.csv", "no predictions"),
        ("gold\n", "x.txt", "does not end in one of .jsonl, .csv, .tsv"),
    ],
)
def test_broken_files(content: str, name: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    result = invoke(tmp_path / name, tmp_path / name)
    assert result.exit_code == 3
    assert words in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (["--as", "class"], "--as classes"),
        (["--metric", "acuracy"], "did you mean 'accuracy'?"),
        (["--samples", "9"], "--samples 10000"),
        (["--gold", "guess"], "name two different columns"),
    ],
)
def test_wrong_words(words: list[str], fix: str, tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", LEFT)
    result = invoke(file, file, *words)
    assert (result.exit_code, fix in result.output) == (2, True), result.output


def test_a_run_that_is_not_there(tmp_path: Path) -> None:
    write(tmp_path / "runs.jsonl", LEFT)
    result = invoke(tmp_path / "rums.jsonl", tmp_path / "runs.jsonl")
    assert result.exit_code == 3
    assert "did you mean" in result.output


def test_rows_are_paired_by_their_ids() -> None:
    def side(*ids: str) -> Predicted:
        return Predicted(Path("x"), [{"id": id, "gold": "a", "guess": id} for id in ids])

    left, right = align(side("1", "2"), side("2", "1"))
    assert [row["guess"] for row in left] == [row["guess"] for row in right] == ["1", "2"]


def test_a_file_outside_a_run_has_no_task(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(to_yaml({"version": 2}), encoding="utf-8")
    file = write(tmp_path / "own/dev.jsonl", LEFT)
    assert read_predicted(file, "dev", ColumnNames(), None).task is None


def test_the_fix_of_absent_answers_leads_to_them(tmp_path: Path) -> None:
    """Answers of an exported folder lie elsewhere, unless `out=` says so."""
    folder = tmp_path / "exported"
    folder.mkdir()
    said = invoke(folder, folder).output
    place = said.split(" out=")[1].split()[0]
    write(Path(place) / "dev.jsonl", LEFT)
    assert compared(folder, folder)["metrics"]["accuracy"]["first"] == 4 / 8


def test_blank_bundles_stand_alone_and_others_must_be_the_same(tmp_path: Path) -> None:
    def write(name: str, guesses: str, bundles: list[str] | None) -> str:
        rows = [f"{n},x,{guess}" for n, guess in enumerate(guesses)]
        head = "id,gold,guess"
        if bundles is not None:
            head, rows = f"{head},bundle", [f"{r},{b}" for r, b in zip(rows, bundles, strict=True)]
        (tmp_path / name).write_text("\n".join([head, *rows, ""]))
        return str(tmp_path / name)

    def compare(*files: str) -> Any:
        return CliRunner().invoke(make_app(), ["compare", *files, "--json"])

    blank = ["", "", "", "", "", "k"]
    right = write("a.csv", "xxxxxx", blank)
    done = compare(right, write("b.csv", "yyyyyy", blank))
    assert json.loads(done.stdout)["bundles"] == 6
    # a side without the column has the bundles of the other
    done = compare(write("c.csv", "yyyyyy", None), write("d.csv", "xxxxxx", list("aabbcc")))
    assert json.loads(done.stdout)["bundles"] == 3
    done = compare(write("e.csv", "yyyyyy", list("aabbcd")), str(tmp_path / "d.csv"))
    assert done.exit_code == 3
    assert "the bundle of 5 is another one than in" in done.stderr


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("numbers", "'no' of id 0 is not a number"),
        ("tags", "'no' of id 0 is no list of tags"),
        ("words", "'no' of id 0 is no list of tags"),
    ],
)
def test_rows_of_another_kind_are_refused(tmp_path: Path, kind: str, told: str) -> None:
    file = write(tmp_path / "a.jsonl", ["no"] * 2, ["no"] * 2)
    done = invoke(file, file, "--as", kind)
    assert done.exit_code == 3
    assert told in done.stderr
    assert "fix: --as classes" in done.stderr
    file = write(tmp_path / "b.jsonl", ["1", "2"], ["1.5", "2"])
    assert compared(file, file, "--as", "numbers")["metrics"]["pearson"]["first"] == 1


def test_labels_of_a_labelled_file_are_named_in_the_fix(tmp_path: Path) -> None:
    """`predict` keeps the columns of its input."""
    (tmp_path / "a.csv").write_text("text,label,id,guess\nx,p,0,p\ny,n,1,p\n")
    done = invoke(tmp_path / "a.csv", tmp_path / "a.csv")
    assert (done.exit_code, "--gold label" in done.stderr) == (3, True)
    found = compared(tmp_path / "a.csv", tmp_path / "a.csv", "--gold", "label")
    assert found["metrics"]["accuracy"]["first"] == 0.5


def test_sets_of_labels_are_classes(tmp_path: Path) -> None:
    a = write(tmp_path / "a.jsonl", [["x", "y"], ["z"]], [["x"], ["z"]])
    b = write(tmp_path / "b.jsonl", [["x"], []], [["x"], ["z"]])
    assert compared(a, b)["metrics"]["accuracy"]["first"] == 0.5
    done = invoke(a, b, "--as", "words")
    assert (done.exit_code, "1 right tags and 2 guessed" in done.stderr) == (3, True)


def _write_pairs(file: Path, right: dict[str, list[float]]) -> Path:
    """Rows as task=minimal_pairs writes them; ids begin anew in each paradigm."""
    rows = [
        {"paradigm": name, "id": str(n), "good": f"{name} {n}", "bad": f"{n}", "right": value}
        for name, values in right.items()
        for n, value in enumerate(values)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def test_two_models_on_minimal_pairs(tmp_path: Path) -> None:
    a = _write_pairs(tmp_path / "a.jsonl", {"x": [1, 0, 0, 0], "y": [1, 0.5]})
    b = _write_pairs(tmp_path / "b.jsonl", {"y": [1, 1], "x": [1, 1, 1, 0]})
    found = compared(a, b)
    assert (found["examples"], found["scored_as"]) == (6, "pairs")
    accuracy, pairs = (found["metrics"][name] for name in ("accuracy", "pairs"))
    # the mean over paradigms, and the share of pairs
    assert [accuracy["first"], accuracy["second"]] == pytest.approx([(1 / 4 + 3 / 4) / 2, 7 / 8])
    assert [pairs["first"], pairs["second"]] == pytest.approx([2.5 / 6, 5 / 6])
    # a tie that counts as half is not right: 3 pairs of b alone, p = 2 (1/2)^3
    assert (found["mcnemar"]["first"], found["mcnemar"]["second"]) == (0, 3)
    assert found["mcnemar"]["exact"] == pytest.approx(1 / 4)
    whole = compared(a, b, "--bundle", "paradigm")
    assert whole["bundles"] == 2
    assert whole["mcnemar"]["unit"] == "bundle"
    # draws of both paradigms, or of one of them twice: +1/2, +1/4 or their mean
    assert [whole["metrics"]["accuracy"][end] for end in ("low", "high")] == [1 / 4, 1 / 2]


def test_a_table_of_minimal_pairs_has_texts(tmp_path: Path) -> None:
    head, row = "paradigm\tid\tgood\tbad\tright", "x\t{}\ta\tb\t{}"
    lines = [head, row.format(1, "1.0"), row.format(2, "0.0"), ""]
    (tmp_path / "a.tsv").write_text("\n".join(lines), encoding="utf-8")
    found = compared(tmp_path / "a.tsv", tmp_path / "a.tsv")
    assert found["metrics"]["accuracy"]["first"] == 1 / 2


@pytest.mark.parametrize(
    ("columns", "told", "fix"),
    [
        ("gold,answer", "no column guess;", "--guess COLUMN"),
        ("good,bad", "no column gold and no column guess;", "--gold COLUMN --guess COLUMN"),
        ("gold,guesses", "did you mean 'guesses'", "--guess guesses"),
        ("gold_label,guess", "did you mean 'gold_label'", "--gold gold_label"),
    ],
)
def test_a_fix_names_options_that_exist_and_columns_that_fit(
    columns: str, told: str, fix: str, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(f"{columns}\nx,y\n", encoding="utf-8")
    said = " ".join(invoke(tmp_path / "a.csv", tmp_path / "a.csv").stderr.split())
    assert told in said
    assert said.endswith(f"fix: {fix}")


def test_several_systems_have_one_table_with_holm_over_all_of_it(tmp_path: Path) -> None:
    """The smaller one of the p-values 2 / 8 and 1 is doubled, for two comparisons."""
    files = [write(tmp_path / f"{n}.jsonl", own) for n, own in enumerate([LEFT, RIGHT, LEFT])]
    found = compared(*files, "--metric", "accuracy")
    assert found["baseline"]["scores"] == {"accuracy": 4 / 8}
    assert found["baseline"]["intervals"]["accuracy"] == pytest.approx([0.2152, 0.7848], abs=1e-4)
    best, same = found["systems"]
    assert best["file"] == str(files[1])
    accuracy = best["metrics"]["accuracy"]
    assert (best["scores"]["accuracy"], accuracy["p"], accuracy["p_holm"]) == (7 / 8, 2 / 8, 4 / 8)
    assert (same["metrics"]["accuracy"]["difference"], same["metrics"]["accuracy"]["p_holm"]) == (
        0,
        1,
    )
    pair = compared(*files[:2], "--metric", "accuracy")
    assert accuracy == pair["metrics"]["accuracy"] | {"p_holm": 4 / 8, "holm_over": 2}
    assert best["mcnemar"] == pair["mcnemar"]
    table = invoke(*files, "--metric", "accuracy").output
    assert f"c: {files[2]}" in table
    assert "corrected by Holm for all 2 comparisons of this table" in " ".join(table.split())
    assert invoke(*files, write(tmp_path / "odd.jsonl", ["pos"], ["pos"])).exit_code == 3


def test_an_interval_that_disagrees_with_its_p_value_is_named(tmp_path: Path) -> None:
    """One system alone is right 8 times, the other once: exact p 20 / 2^9, doubled by Holm."""
    golds = ["pos"] * 20 + ["neg"] * 20
    less = ["neg"] * 8 + golds[8:]
    more = [*golds[:8], "neg", *golds[9:]]
    files = [write(tmp_path / f"{n}.jsonl", g, golds) for n, g in enumerate([less, more, less])]
    pair = ("--metric", "accuracy")
    assert "p disagree" not in invoke(*files[:2], *pair).output
    said = " ".join(invoke(*files, *pair).output.split())
    assert "interval and p disagree on a difference of 0 (accuracy of b): p is the test" in said


def test_two_pretrainings_are_compared_by_a_report(tmp_path: Path) -> None:
    (tmp_path / "zh").mkdir()
    (tmp_path / "zh" / "held_out.json").write_text("{}")
    with pytest.raises(DataError, match=rf"fix: plmctl report {tmp_path / 'zh'}$"):
        read_predicted(tmp_path / "zh", "dev", ColumnNames(), None)


@pytest.mark.parametrize(
    ("prints", "said"),
    [
        (
            "same",
            r"one tokenizer.*minimal_pairs \(out=\).*\n"
            r"  fix: plmctl eval -m task=lm checkpoint=\S*a,\S*b data",
        ),
        ("other", r"different tokenizers.*Bits per byte do.*\n  fix: # fine-tune each"),
    ],
)
def test_pretrainings_are_refused_with_what_compares_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prints: str, said: str
) -> None:
    def load(folder: Path) -> Any:
        return SimpleNamespace(fingerprint={"b": prints}.get(folder.parent.name, "same"))

    monkeypatch.setattr(predicted, "find", lambda place: place)
    monkeypatch.setattr(predicted.Tokenizer, "load", load)
    places = [tmp_path / name for name in "ab"]
    for place in places:
        place.mkdir()
        (place / "held_out.json").write_text("{}")
    with pytest.raises(DataError, match=said):
        predicted.refuse_pretrainings(places, "dev")
    write(places[0] / "dev.jsonl", ["pos"], ["pos"])
    predicted.refuse_pretrainings(places, "dev")  # one has answers


@pytest.fixture
def tuned(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A run with a model of words that is better on its dev split, by a metric."""
    metric = request.param
    draws = random.Random(5)
    rows = {
        name: [
            {"id": str(n), "gold": gold, "guess": gold if draws.random() < right else other}
            for n in range(200)
            for gold, other in ["abcd"[n % 4] + draws.choice("abcd")]
        ]
        for name, right in (("own", 0.6), ("words", 0.7))
    }
    task = {**CLASSES, "metrics": [metric]}
    score = build(task, path="task").score
    values = {name: score(own)[metric] for name, own in rows.items()}
    run = fabricated.tuned(tmp_path / "run", task, {"dev": {metric: values["own"]}}, rows["own"])
    write_json(run / BASELINES, {"dev": {"words": {metric: values["words"]}}})
    write_predictions(folder_of(run, "words"), "dev", rows["words"])
    result = json.loads((run / "result.json").read_text())
    tests = find_tests(rows["own"], {"words": rows["words"]}, score, metric)  # as finetune does
    write_json(run / "result.json", result | {TESTS: {"dev": tests}, "examples": {"dev": 200}})
    return run


@pytest.mark.parametrize("tuned", ["accuracy", "macro_f1"], indirect=True)
def test_the_same_question_has_one_p_in_all_commands(tuned: Path) -> None:
    """Fine-tuning, eval, sheet, card, and compare of the run with the model of words."""
    record = json.loads((tuned / "result.json").read_text())[TESTS]["dev"]["words"]
    test = SwapTest.read(record)
    rows = [json.loads(line) for line in (tuned / "predictions/dev.jsonl").open()]
    config = RunLog.read_started(tuned).config
    task: Any = build(config["task"], path="task")
    assert test.way == ("exact" if task.metrics == ["accuracy"] else "9,999 random swaps")
    assert 0.0002 < test.p < 0.9
    source: Any = SimpleNamespace(run=tuned)
    answered = AnsweredSplit("dev", [], rows, task.score(rows), {})
    told = compare_simple(source, task, answered, tuned / "eval/dev.jsonl", own=True)
    words, log = tuned / "baselines/words/dev.jsonl", tuned / "page.md"
    plmctl("report", str(tuned), "--brief", "--out", str(log))
    few = ("--samples", 100)
    both = invoke(tuned, tuned, *few).output
    several = invoke(tuned, tuned, words, *few).output
    line = f"p {test.spell()}; p by swaps: {test.way}, not corrected"
    for said in (told[UNBEATEN].text, log.read_text(), make_card(tuned, config), both, several):
        assert line in " ".join(said.split())
    for files in ((tuned, words), (words, tuned)):
        (found,) = compared(*files, *few, "--seed", 7)["metrics"].values()
        assert (found["p"], found["swaps"]) == (pytest.approx(test.p, rel=1e-5), test.swaps)
    many = compared(tuned, words, words, *few)
    assert list(many["unbeaten"]) == ["a"]
    (found,) = many["systems"][1]["metrics"].values()
    assert (found["p"], found["holm_over"]) == (pytest.approx(test.p, rel=1e-5), 2)


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("doc_id", "aabbccdd", True),
        ("Document", "aaaabbbb", True),
        ("doc_id", "abcdefgh", False),  # each row alone
        ("doc_id", "aaaaaaaa", False),
        ("docs", GOLD, False),  # the right answers
        ("colour", "aabbccdd", False),
    ],
)
def test_columns_of_groups_are_named_as_bundles(
    tmp_path: Path, name: str, values: Any, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    files = []
    for side, guesses in (("a", LEFT), ("b", RIGHT)):
        rows = [",".join(row) for row in zip(GOLD, guesses, values, strict=True)]
        files.append(tmp_path / f"{side}.csv")
        files[-1].write_text("\n".join([f"gold,guess,{name}", *rows, ""]))
    left, right = (read_predicted(file, "dev", ColumnNames(), None).rows for file in files)
    assert find_group(left, right) == (name if told else "")
    said = invoke(*files)
    assert (f"--bundle {name}" in said.output + said.stderr + caplog.text) is told
    assert compared(*files, "--bundle", name)["bundles"] == len({*values})


def test_rows_of_one_id_have_one_text(tmp_path: Path) -> None:
    """Two files may have the same numbers and labels, and other texts."""

    def side(name: str, rows: list[str], texts: str = "") -> Predicted:
        own = [{"id": str(n), "gold": "x", "guess": "x", "text": t} for n, t in enumerate(rows)]
        bare = [{name: row[name] for name in ("id", "gold", "guess")} for row in own]
        return Predicted(tmp_path / name, bare if texts else own, texts=texts)

    align(side("a", ["one", "two"]), side("b", ["one", "two"]))
    with pytest.raises(DataError, match=r"2 of 2 rows have another text than in .*a: 0, 1"):
        align(side("a", ["one", "two"]), side("b", ["two", "one"]))
    align(side("a", ["one"], "5f"), side("b", ["one"], "5f"))
    align(side("a", ["one"], "5f"), side("b", ["one"]))
    with pytest.raises(DataError, match="its rows have other texts than those of "):
        align(side("a", ["one"], "5f"), side("b", ["one"], "6e"))


def test_runs_compare_on_the_rows_that_both_have_scored(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    known = [(old, "test", "5f"), (old, "other-test", "6e"), (new, "test", "6e")]
    for run, name, texts in known:
        keep_scored(run, name, ScoredFiles("test", name == "test", {}, 4, texts=texts))
    own, other = old / "eval/test.jsonl", old / "eval/other-test.jsonl"
    assert find_common([old, new], "test") == [other, new / "eval/test.jsonl"]
    assert find_common([new, new], "test") == [new, new]
    assert find_common([own, new], "test") == [own, new]  # a file is what it is
    keep_scored(new, "test", ScoredFiles("test", True, {}, 4, texts="7d"))
    assert find_common([old, new], "test") == [old, new]
