"""The model card: front matter that Hugging Face's own library reads, and what a config knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from plmctl.analysis.runs import RunLog
from plmctl.cli.app import make_app
from plmctl.data.held_out import HeldText
from plmctl.report.card import make_card
from tests.report import fabricated

TASK = {
    "_target_": "plmctl.tasks.classification.Classification",
    "name": "sst2",
    "metrics": ["accuracy"],
    "path": "/a/b/SST-2",
}


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    rows = [{"id": "0", "gold": "1", "guess": "1", "probabilities": {"0": 0.1, "1": 0.9}}]
    return fabricated.tuned(
        tmp_path / "sst2",
        TASK,
        {"dev": {"accuracy": 0.9, "loss": 0.3}},
        rows,
        checkpoint="runs/wiki",
    )


def front(text: str) -> dict[str, object]:
    begin, head, _ = text.split("---\n", 2)
    assert begin == ""
    return yaml.safe_load(head)


def test_of_a_fine_tuned_run(tuned: Path, tmp_path: Path) -> None:
    words = [
        "report",
        str(tuned),
        "--out",
        str(tmp_path / "r.html"),
        "--card",
        str(tmp_path / "c" / "README.md"),
    ]
    done = CliRunner().invoke(
        make_app(),
        [*words, "--fact", "license=mit", "--fact", "language=en,de", "--fact", "name=mine"],
    )
    assert done.exit_code == 0, done.output
    text = (tmp_path / "c" / "README.md").read_text()
    assert front(text) == {
        "license": "mit",
        "language": ["en", "de"],
        "library_name": "plmctl",
        "pipeline_tag": "text-classification",
        "tags": ["plmctl", "bert", "sst2"],
        "datasets": ["SST-2"],
        "metrics": ["accuracy"],
        "model-index": [
            {
                "name": "mine",
                "results": [
                    {
                        "task": {"type": "text-classification", "name": "sst2"},
                        "dataset": {"name": "SST-2", "type": "sst2", "split": "dev"},
                        "metrics": [{"type": "accuracy", "name": "accuracy", "value": 0.9}],
                    }
                ],
            }
        ],
    }
    for line in (
        "# mine",
        "| starts from | runs/wiki |",
        "| trained on | SST-2 |",
        "| dev | accuracy | 0.9 |",
        "| dev | loss | 0.3 |",
        "Examples: dev 1.",
    ):
        assert line in text
    assert "/a/b" not in text


def test_of_a_pretraining(tmp_path: Path) -> None:
    folder = fabricated.run(tmp_path / "wiki")
    text = make_card(folder, RunLog.read(folder).config)
    found = front(text)
    assert found["pipeline_tag"] == "fill-mask"
    assert not found.keys() & {"license", "language", "base_model", "datasets"}
    for line in ("| tokens read | 1,000 |", "| training time | 0.0 minutes |"):
        assert line in text
    assert "model-index" not in found
    assert "| held-out documents | loss/mlm | 1.827 |" in text
    assert "Not stated." in text


def test_the_warm_up_and_the_length_are_those_of_the_run(tmp_path: Path) -> None:
    """A limit cuts a warm-up, and `least_steps` counts where epochs are the length."""
    folder = fabricated.run(tmp_path / "short")
    schedule = {"_target_": "x.Polynomial", "warmup_steps": 200, "warmup_limit": 0.1}
    train = {**fabricated.CONFIG["train"], "steps": 60, "epochs": None, "least_steps": 500}
    card = make_card(folder, {**fabricated.CONFIG, "schedule": schedule, "train": train})
    assert "| warm-up | 6 of 60 updates |" in card
    assert "| length | 60 steps |" in card
    assert "at least" not in card
    schedule = {**schedule, "warmup_steps": 0, "warmup_share": 0.05}
    card = make_card(folder, {**fabricated.CONFIG, "schedule": schedule, "train": train})
    assert "| warm-up | 3 of 60 updates |" in card
    train |= {"steps": None, "epochs": 3}
    card = make_card(folder, {**fabricated.CONFIG, "schedule": schedule, "train": train})
    assert "| at least | 500 updates |" in card
    assert "| warm-up |" not in card


@pytest.mark.parametrize("tokens", [1_999, 2_000])
def test_too_little_held_out_text_has_one_heading(tokens: int, tmp_path: Path) -> None:
    """Also beside scores: a run may hold out little and be scored on a task."""
    folder = fabricated.run(tmp_path / "few")
    HeldText(3, tokens).write(folder)
    scores = {"dev": {"accuracy": 0.5}}
    (folder / "result.json").write_text(json.dumps({"metrics": scores}))
    card = make_card(folder, fabricated.CONFIG)
    assert card.count("# Evaluation\n") == 1
    assert ("too few for a validation" in card) is (tokens < 2_000)


def test_use_by_transformers_cuts_long_texts(tuned: Path) -> None:
    config = {"task": TASK}
    text = make_card(tuned, config, {"name": "mine"}, library="transformers")
    (call,) = [line for line in text.splitlines() if "truncation=True" in line]
    assert call.strip().startswith("print(answer(")
    assert 'pipeline("text-classification", "mine")' in text
    assert "## Use\n" not in make_card(tuned, config)


def test_the_hub_reads_it(tuned: Path) -> None:
    hub = pytest.importorskip("huggingface_hub")
    config = RunLog.read(tuned).config | {"checkpoint": "hf:google-bert/bert-base-cased@main"}
    read = hub.ModelCard(make_card(tuned, config, {"license": "mit"}))
    (accuracy,) = read.data.eval_results
    assert (accuracy.metric_type, accuracy.metric_value, accuracy.dataset_split) == (
        "accuracy",
        0.9,
        "dev",
    )
    assert read.data.to_dict()["license"] == "mit"
    assert read.data.base_model == "google-bert/bert-base-cased"


def test_scores_have_intervals_and_settings_are_folded(tuned: Path) -> None:
    record = json.loads((tuned / "result.json").read_text())
    record |= {"intervals": {"dev": {"accuracy": [0.85, 0.94]}}, "labels": ["bad", "good"]}
    (tuned / "result.json").write_text(json.dumps(record))
    config = RunLog.read(tuned).config
    text = make_card(tuned, {**config, "init": "/home/ada/x", "task": {**TASK, "max_length": 64}})
    for line in (
        "| dev | accuracy | 0.9 | 0.85 to 0.94 |",
        "| dev | loss | 0.3 |  |",
        "Training has read rows of at most 64 tokens.",
        "Every answer is one of its labels: bad, good.",
        "with the seed 3",
    ):
        assert line in text
    _, folded = text.split("<summary>All settings</summary>\n\n```yaml\n")
    settings = yaml.safe_load(folded.partition("```")[0])
    assert settings["optim"] == config["optim"]
    assert (settings["task"]["path"], settings["init"], "run" in settings) == ("SST-2", "x", False)


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({"checkpoint": "/h/models--ada--tiny/snapshots/1dbc"}, {"base_model": "ada/tiny"}),
        ({"checkpoint": "runs/wiki"}, {}),
        (
            {"task": {"source_language": "deu_Latn", "target_language": "en_XX"}},
            {"language": ["deu", "en"]},
        ),
        ({"data": {"mixture": {"a": {"language": "de"}, "b": {}}}}, {"language": ["de"]}),
    ],
)
def test_what_the_settings_say_is_stated_for_the_hub(
    tmp_path: Path, config: dict[str, object], wanted: dict[str, object]
) -> None:
    found = front(make_card(tmp_path, config))
    assert {key: found[key] for key in ("base_model", "language") if key in found} == wanted


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        (
            {"task": {"name": "translation", "path": ["/a/train.en", "/a/train.de"]}},
            "train.en, train.de",
        ),
        ({"data": {"path": None, "mixture": {"en": {}, "zh": {}}}}, "en, zh"),
        ({"data": {"path": "/a/wiki"}}, "wiki"),
        ({"data": {"path": None}}, "the text that ships with plmctl"),
    ],
)
def test_what_it_was_trained_on(tmp_path: Path, config: dict[str, object], wanted: str) -> None:
    text = make_card(tmp_path, {**config, "teacher": "runs/big", "train": {"share": 0.1}})
    for line in (f"| trained on | {wanted} |", "| taught by | big |", "| share of it | 0.1 |"):
        assert line in text
