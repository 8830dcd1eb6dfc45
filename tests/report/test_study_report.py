"""The page of a study: finished, half done, with jobs that failed; and that fifty runs stay a
small page.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from plmctl.analysis.runs import RunLog
from plmctl.cli.app import make_app
from plmctl.report import study_panels
from plmctl.report.page import Chart, Paragraph, TableBlock, render_html
from plmctl.report.studies import StudyFolder
from plmctl.report.subject import find_subject
from plmctl.report.write import make_blocks
from tests.report import fabricated, parsed


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fabricated.study(tmp_path_factory.mktemp("study") / "rates")


def page(folder: Path) -> tuple[parsed.Page, str]:
    text = render_html(make_blocks(find_subject([folder])), title="t")
    return parsed.parse(text), text


def test_a_finished_study(study: Path) -> None:
    found, text = page(study)
    assert found.headings[0] == "Rates < & > others"
    assert {"Findings", "Curves by arm", "Cost of an arm", "Jobs"} <= set(found.headings)
    rows = found.table("arm", "n")
    assert [row[0] for row in rows] == ["rate 0", "rate 1", "rate 2"]
    assert rows[1][-2] in ("held", "not held", "undecided at this scale")
    assert (
        found.tables[[table[0][0] for table in found.tables].index("expected direction")][1][0]
        == "held"
    )
    assert found.table("arm", "parameters")[0] == ["rate 0", "1,000", "4,000", "2.4e+07", "4"]
    assert found.table("arm", "its settings")[0] == ["rate 0 (baseline)", "optim.lr=0e-3"]
    assert "A note." in text
    assert [row[5] for row in found.table("arm", "n")] == ["", "0.021", "0.021"]
    assert "show with 80% probability" in text
    assert "The study has taken 1:02:03 of wall-clock time." in text
    assert "Of what it is; higher is better." in text
    assert text.count("<svg") == 3  # one metric with its differences, one curve
    assert text.count("<polyline") == 3


def test_the_settings_of_an_arm_say_whose_they_are(tmp_path: Path) -> None:
    arms = {"a": ["optim.lr=1"], "b": {"finetune": ["optim.lr=2", "seed=1"], "times": 2}}
    (table,) = study_panels.arms.draw(StudyFolder(tmp_path, {"arms": arms}, None))
    assert isinstance(table, TableBlock)
    assert table.rows == [["a", "optim.lr=1"], ["b", "times=2 fine-tuning: optim.lr=2 seed=1"]]


def test_a_study_begins_with_its_findings(study: Path) -> None:
    headings = page(study)[0].headings
    assert headings.index("Findings") == 1
    assert "Arms" in headings


def test_arms_that_only_leaves_out_have_no_settings() -> None:
    arms = {name: [f"optim.lr={name}"] for name in "abcd"}
    settings: dict[str, Any] = {"arms": arms, "baseline": "a"}
    study: Any = SimpleNamespace(settings=settings, jobs=[SimpleNamespace(arm="c")])  # a teacher
    for only, wanted in ((["b"], "abc"), ([], "abcd")):
        settings["only"] = only
        (table,) = study_panels.arms.draw(study)
        assert [row[0][0] for row in table.rows] == [*wanted]


def test_many_arms_have_a_picture_each_on_equal_axes(tmp_path: Path) -> None:
    blocks = study_panels.curves(find_subject([fabricated.study(tmp_path / "rates", arms=7)]))
    svgs = [block.svg for block in blocks if isinstance(block, Chart)]
    assert [svg.count("<polyline") for svg in svgs] == [1] * 7
    # the first is the baseline, which the others have as a dashed line
    assert ["stroke-dasharray" in svg for svg in svgs] == [False] + [True] * 6
    ticks = {tuple(re.findall(r'text-anchor="end">(\d+)<', svg)) for svg in svgs}
    assert len(ticks) == 1
    # the title names the arm, and one line of the page the dashes
    assert [svg.count(f"rate {number}") for number, svg in enumerate(svgs)] == [3] * 7
    dashed = [block.text for block in blocks if isinstance(block, Paragraph)][1]
    assert dashed == "Dashed: rate 0 (2)."


def test_losses_that_were_measured_once_are_levels(tmp_path: Path) -> None:
    """Also of seeds that ended at different updates, as a budget of words has them."""
    folder = fabricated.study(tmp_path / "rates")
    ends = {}
    for number, file in enumerate(sorted(folder.glob("jobs/pretrain*/run/metrics.jsonl"))):
        value = 3.0 + number
        file.write_text(json.dumps({"step": 800 + number, "valid/loss/mlm": value}) + "\n")
        ends[value] = file
    chart = next(b for b in study_panels.curves(find_subject([folder])) if isinstance(b, Chart))
    assert chart.name == "ends-valid-loss-mlm"
    assert chart.svg.count('r="5"') == 3
    assert chart.svg.count('r="2.5"') == len(ends)


def test_an_unfinished_seed_is_no_end_and_hides_no_curve(tmp_path: Path) -> None:
    folder = fabricated.study(tmp_path / "rates", arms=2)
    for arm, event in ((0, "interrupted"), (1, "started")):
        place = folder / "jobs" / f"pretrain-{arm:08x}{1:08x}"
        line = json.dumps({"step": 1, "valid/loss/mlm": 9.0})
        (place / "run" / "metrics.jsonl").write_text(f"{line}\n")
        fabricated.record(place, f"pretrain rate {arm}, seed 1", event)
    charts = [b for b in study_panels.curves(find_subject([folder])) if isinstance(b, Chart)]
    assert [chart.name for chart in charts] == ["curves-valid-loss-mlm"]
    assert [name in charts[0].svg for name in ("rate 0<", "rate 1<", "(2)")] == [True, True, False]
    place = folder / "jobs" / f"pretrain-{1:08x}{0:08x}"
    fabricated.record(place, "pretrain rate 1, seed 0", "interrupted")
    last = study_panels.curves(find_subject([folder]))[-1]
    assert isinstance(last, Chart)
    assert last.name == "curves-valid-loss-mlm"  # no end of what has not ended


def test_a_study_by_words_has_words_below_its_curves_and_pictures_of_its_pairs(
    tmp_path: Path,
) -> None:
    folder = fabricated.study(tmp_path / "rates", arms=2)
    settings = json.loads((folder / "study.json").read_text())
    (folder / "study.json").write_text(json.dumps({**settings, "budget": {"words": 50}}))
    electra = {"_target_": "plmctl.objectives.electra.Electra", "rtd_weight": 50}
    for number, file in enumerate(sorted(folder.glob("jobs/pretrain*/run/metrics.jsonl"))):
        lines = [{"step": n, "words": 7 * n, "valid/loss/mlm": 3.0 / n} for n in (1, 2, 3)]
        pairs = [{"step": n, "valid/acc/minimal_pairs": 0.5} for n in (1, 3)]
        file.write_text("".join(f"{json.dumps(each)}\n" for each in [*lines, *pairs]))
        if number > 1:
            config = json.dumps({**fabricated.CONFIG, "objective": {"electra": electra}})
            (file.parent / "config.yaml").write_text(config)
    charts = {
        b.name: b.svg for b in study_panels.curves(find_subject([folder])) if isinstance(b, Chart)
    }
    assert [*charts] == [
        "curves-valid-loss-mlm",
        "curves-valid-loss-mlm-of-the-generator",
        "curves-valid-acc-minimal_pairs",
    ]
    assert all(">words<" in svg for svg in charts.values())
    assert ["rate 1" in svg for svg in charts.values()] == [False, True, True]


def test_undecided_comparisons_say_what_decides_more() -> None:
    row = {"expected": "higher", "difference": 0.1, "detectable": None, "verdict": "undecided"}
    _, more = study_panels.count_verdicts([row, row])
    assert more.text.startswith("Next: 2 comparisons without a verdict.")


def test_expectations_without_a_verdict_are_counted() -> None:
    row = {"expected": "higher", "difference": 0.1, "detectable": None}
    rows = [
        {**row, "verdict": "held"},
        {**row, "verdict": "", "difference": None},
        {**row, "verdict": "", "expected": ""},
    ]
    (table,) = study_panels.count_verdicts(rows)
    assert table.rows == [
        ["held", "1"],
        ["not held", "0"],
        ["undecided at this scale", "0"],
        ["not run", "1"],
    ]


def test_the_losses_of_all_arms_are_drawn_those_of_most_arms_first() -> None:
    def arm(*names: str) -> list[RunLog]:
        return [RunLog(Path("x"), {}, {f"valid/loss{name}": [(1, 2.0)] for name in names})]

    def find(*arms: list[RunLog]) -> list[str]:
        return [name.removeprefix("valid/loss") for name in study_panels._list_losses(arms)]

    assert find(arm("", "/nsp", "/mlm"), arm("", "/mlm"), arm("/clm")) == ["/mlm", "/nsp", "/clm"]
    assert find(arm("", "/mlm"), arm("")) == ["/mlm", ""]
    assert find(arm(""), arm("")) == [""]


def test_its_jobs(study: Path) -> None:
    found, _ = page(study)
    assert found.table("not done") == [
        [
            "sst2 of rate 2, seed 1",
            "failed",
            "DataError: no room second line",
            "jobs/finetune-failed/log.txt",
        ],
        ["sst2 of rate 2, seed 1", "still going", "", "jobs/finetune-cut/log.txt"],
    ]
    assert found.table("job", "why") == [["eval of last", "not run yet", "rate 2, seed 0"]]
    listed = found.table("job", "state")
    assert len(listed) == 8
    assert listed[0][:2] == ["pretrain rate 0, seed 0", "done"]
    assert (study / listed[0][-1]).is_dir()


def test_jobs_that_never_began_are_counted_and_named(tmp_path: Path) -> None:
    folder = fabricated.study(tmp_path / "rates", arms=2, seeds=1)
    settings = json.loads((folder / "study.json").read_text())
    begun = {each.name: each.name for each in (folder / "jobs").iterdir() if each.is_dir()}
    settings["jobs"] = {**begun, "eval-1": "eval of rate 1", "eval-2": "eval of rate 2"}
    (folder / "study.json").write_text(json.dumps(settings))
    found, text = page(folder)
    assert f"2 of {len(begun) + 2} have not begun" in text
    assert found.table("job that has not begun") == [["eval of rate 1"], ["eval of rate 2"]]


def test_a_study_that_was_looked_at(tmp_path: Path) -> None:
    folder = fabricated.study(tmp_path / "rates")
    settings = json.loads((folder / "study.json").read_text())
    settings["budget"]["hours"] = 1.5
    (folder / "study.json").write_text(json.dumps(settings))
    table = json.loads((folder / "table.json").read_text())
    table |= {"looks": [{"seeds": 3, "share": 0.25}, {"seeds": 4, "share": 0.75}]}
    table |= {"most_seeds": 4}
    (folder / "table.json").write_text(json.dumps(table))
    text = page(folder)[1]
    assert "Time budget of the study: 1:30:00." in text
    assert "Budget of every pretraining: 40 steps." in text
    assert "Seeds were spent in rounds, 3, 4 of at most 4" in text
    assert "hours of training in all" not in text  # seeds differ from arm to arm


def test_a_study_half_done(tmp_path: Path) -> None:
    folder = fabricated.study(tmp_path / "rates", done=False)
    found, text = page(folder)
    assert "There is no table yet" in text
    assert {"Curves by arm", "Jobs"} <= set(found.headings)
    assert "Findings" not in found.headings
    (folder / "table.json").write_text('{"rows": [')  # half of one
    assert "There is no table yet" in page(folder)[1]
    shutil.rmtree(folder / "jobs")
    assert "none started" in page(folder)[1]


def test_a_study_whose_arm_was_edited(tmp_path: Path) -> None:
    """Only the jobs of the last start count, under the names that they have there; those of
    before are listed by themselves.
    """
    folder = fabricated.study(tmp_path / "rates", arms=2, seeds=2)
    old, new = (
        ["pretrain-0000000100000000", "pretrain-0000000100000001"],
        ["pretrain-edited0", "pretrain-edited1"],
    )
    for now in new:
        fabricated.run(folder / "jobs" / now / "run", steps=40, level=7.0)
        label = f"pretrain rate 1, seed {now[-1]}"
        fabricated.record(folder / "jobs" / now, label, "finished")
    jobs = {f"pretrain-{0:08x}{seed:08x}": f"pretrain first, seed {seed}" for seed in (0, 1)}
    jobs |= {name: f"pretrain rate 1, seed {seed}" for seed, name in enumerate(new)}
    settings = json.loads((folder / "study.json").read_text())
    (folder / "study.json").write_text(json.dumps({**settings, "jobs": jobs}))
    made = StudyFolder.read(folder)
    assert [job.folder.name for job in made.jobs if job.arm == "rate 1"] == new
    assert {job.folder.name for job in made.superseded} == {*old, "finetune-failed", "finetune-cut"}
    found, text = page(folder)
    assert "Jobs: 4 done; 4 superseded." in text
    assert "The table is that of an earlier start; the study was started again since." in text
    assert [row[0] for row in found.table("job", "state")] == [
        *(
            "pretrain first, seed 0",
            "pretrain first, seed 1",
            "pretrain rate 1, seed 0",
            "pretrain rate 1, seed 1",
        )
    ]
    charts = [block for block in make_blocks(find_subject([folder])) if isinstance(block, Chart)]
    (curves,) = [chart.svg for chart in charts if chart.name.startswith("curves-")]
    assert [name in curves for name in ("first (2)", "rate 1 (2)", "rate 0")] == [True, True, False]
    assert (
        "Jobs of the study as it was before it was edited: they are in no curve, table or cost"
        " above." in text
    )


def test_a_job_cut_off_in_its_last_line(tmp_path: Path) -> None:
    folder = fabricated.study(tmp_path / "rates", arms=2, seeds=1)
    job = next(job for job in StudyFolder.read(folder).jobs if job.verb == "pretrain")
    with (job.folder / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 99, "lo')
    assert "99" not in [row[2] for row in page(folder)[0].table("job", "state")]


def test_a_study_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text("{")
    done = CliRunner().invoke(make_app(), ["report", str(tmp_path)])
    assert done.exit_code == 3
    assert "start the study again" in done.stderr


@pytest.mark.slow  # a matter of size, not of results
def test_fifty_runs_are_a_small_page(tmp_path: Path) -> None:
    folder = fabricated.study(tmp_path / "rates", arms=10, seeds=5, steps=300)
    found, text = page(folder)
    assert len(found.table("job", "state")) == 52
    assert len(text.encode()) < 100_000


def test_runs_are_named_by_their_study_or_by_what_differs_in_their_paths(tmp_path: Path) -> None:
    study = fabricated.study(tmp_path / "rates", arms=2)
    settings = json.loads((study / "study.json").read_text())
    folders = sorted(file.parent for file in study.glob("jobs/pretrain*/run/config.yaml"))[:2]
    jobs = [folder.parent.name for folder in folders]
    known = dict(zip(jobs, ["pretrain fast, seed 0", "toy of fast, seed 0"], strict=True))
    (study / "study.json").write_text(json.dumps({**settings, "jobs": known}))
    names = [run.name for run in find_subject(folders).runs]
    assert names == ["fast, seed 0", "toy of fast, seed 0"]
    (study / "study.json").write_text(json.dumps({**settings, "jobs": {}}))
    assert [run.name for run in find_subject(folders).runs] == jobs
