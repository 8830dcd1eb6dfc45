"""`plmctl ablate`: names, the plan that --dry-run shows, mistakes, an edited study, and the
studies that are shipped.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config.recipes import load, recipe_names, recipes_dir
from plmctl.runs import vocabulary
from plmctl.study import bases, tokenizers
from tests.knowledge.tables import write_knowledge
from tests.marks import mark_slow
from tests.study import toy_study

STUDIES = sorted(file.stem for file in (recipes_dir() / "studies").glob("*.yaml"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    toy_study.write_files(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def no_base(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where bases are looked for, none is made."""
    monkeypatch.setattr(bases, "find_cache_folder", lambda given=None: tmp_path / "none")


def ablate(*words: str) -> Any:
    return CliRunner().invoke(make_app(), ["ablate", *words])


# many arms; another study of the same kind stays
SLOW = {
    "adaptation",  # pretrained_tasks
    "adaptive_span",  # sandwich
    "attention_itself",  # mass_span
    "albert_embedding",  # bert_tasks
    "albert_pairs",
    "attention_scores",  # mass_span
    "attention_widths",
    "attention_weights",  # roberta_batch
    "positions",  # roberta_batch
    "bert_layers",  # bert_tasks
    "bert_masks",
    "bert_sizes",
    "bert_steps",
    "distill_students",  # distilbert_losses
    "elmo_data",  # elmo_layers
    "elmo_penalty",
    "elmo_places",
    "elmo_updates",
    "gpt_lstm",  # gpt_auxiliary
    "roberta_data",  # roberta_batch
    "bart_noises",  # mass_span
    "t5_objectives",
    "bart_objectives",
    "structbert",  # bert_tasks
    "structbert_accuracies",
    "two_ways",  # elmo_layers
    "electra",  # roberta_masking
    "electra_training",
    "electra_tying",
    "erica_controls",  # wklm
    "knowbert_controls",
    "luke_controls",
    "encoders_depth",  # bert_tasks
    "encoders_short",
    "minilm_relations",  # distilbert_losses
    "theseus_rates",
    "tinybert_losses",
    "prenorm_translation",  # mass_span
    "prenorm_warmup",
    "roberta_formats",  # roberta_masking
    "spanbert_schemes",  # roberta_masking
    "spanbert_units",
    "transformer",  # mass_span
    "transformer_xl",  # xlnet_memory
    "xlnet_parts",  # xlnet_memory
    "albert_sharing",  # bert_tasks
    "prenorm_gradients",  # mass_span
    "universal_strings",  # mass_span
    "ernie_controls",  # wklm
    "ernie_baidu",  # wklm
    "spanbert_sbo",  # roberta_masking
    "sentilare",  # libert
    "modern_encoder",  # roberta_batch
    "k_adapter",  # few_labels
    "sensebert",  # libert
    "encoders",  # bert_tasks
    "compressive_transformer",  # xlnet_memory
    "longformer_windows",  # sandwich
    "kepler",  # wklm
    "evolved_transformer",  # mass_span
    "gpt_pretraining",  # gpt_auxiliary
    "reformer_hashes",  # sandwich
    "electra_generator",  # roberta_masking
    "lite_transformer",  # mass_span
    "small_encoder",  # bert_tasks
}


# studies of text with marked entities
LINKED = (
    "wklm",
    "erica_controls",
    "ernie_controls",
    "knowbert_controls",
    "ernie_baidu",
    "luke_controls",
    "spanbert_units",
)


# need a trained model, and are planned in tests/study/test_injections.py, test_extensions.py
STARTED = {"bertram", "extend"}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", mark_slow(sorted({*STUDIES} - STARTED), SLOW))
def test_shipped_studies_plan_without_any_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for module in (vocabulary, tokenizers):
        monkeypatch.setattr(module, "SHORT", 4096)  # characters
    # neither Chinese text nor text with marked entities comes with Python
    files = {"chinese_units": "zhwiki.txt", "kbert": "lexicon.spo", "ebert": "vectors"}
    needed = (files | dict.fromkeys(LINKED, "linked")).get(name)
    if needed == "lexicon.spo":
        (tmp_path / needed).write_text("name\tis\tword\n", encoding="utf-8")
    elif needed == "vectors":
        (tmp_path / needed).mkdir()
    elif needed == "linked":
        marks = [{"start": 8 * n, "end": 8 * n + 4, "id": n % 7} for n in range(40)]
        rows = [{"text": "name is " * 400 + f"{n}.", "entity": marks} for n in range(80)]
        write_knowledge(tmp_path / "linked", rows=rows)
    elif needed:
        pytest.importorskip("jieba")  # of its arm "words"
        text = "今天天气很好。\n\n我们去公园。\n" * 400
        (tmp_path / needed).write_text(text, encoding="utf-8")
    text = (recipes_dir() / "studies" / f"{name}.yaml").read_text(encoding="utf-8")
    words = ["start=null"] if "\nstart: " in text else []
    done = ablate(name, "--dry-run", "--json", *words)
    assert done.exit_code == 0, done.output
    plan = json.loads(done.stdout)
    assert plan["cells"] >= 6
    assert all(job["state"] == "open" for job in plan["jobs"])
    assert bool(plan["left_out"]) == ("path: null" in text)
    assert [file.name for file in tmp_path.iterdir()] == ([needed] if needed else [])


@pytest.mark.parametrize("name", STUDIES)
def test_header_of_shipped_studies(name: str) -> None:
    text = (recipes_dir() / "studies" / f"{name}.yaml").read_text(encoding="utf-8")
    for word in ("# Launch:", "# Published:", "# Scaled:", "source:"):
        assert word in text
    own = re.sub(r"^published:.*\n(?:[ #].*\n|\n)*", "", text, flags=re.MULTILINE)
    assert len(own.splitlines()) <= 60  # of at most 100 characters


def test_there_are_the_three() -> None:
    assert set(STUDIES) > SLOW
    assert {"bert_sizes", "roberta_masking", "gpt_pretraining"} <= set(STUDIES)
    assert not any("studies" in name for name in recipe_names())  # they are no recipes


def test_dry_run_shows_jobs_and_cost(here: Path) -> None:
    toy_study.write_study(here)
    before = sorted(here.rglob("*"))
    shown = ablate("./toy.yaml", "--dry-run").output
    for words in (
        "4 combinations: 2 arms x 2 seeds",
        "tokenize",
        "finetune",
        "training FLOPs",
        "total",
        "fine-tuning on ",
        "time estimated: at ",
        "of this device's",
        "toy: 2 arms x 2 seeds x 1 setting x 1 restart = 4 fine-tunings",
        "(equal ones run once), at most ",
    ):
        assert words in " ".join(shown.split())
    assert sorted(here.rglob("*")) == before


def test_dry_run_shows_the_rounds(here: Path) -> None:
    toy_study.write_study(here)
    words = ("./toy.yaml", "--dry-run", "until=decided", "seeds=[0,1,2,7,9]", "budget.hours=2")
    shown = ablate(*words).output
    for text in ("0, 1, 2", "11.1% of 0.05", "33.3%", "55.6%", "budget.hours=2"):
        assert text in shown
    looks = json.loads(ablate(*words, "--json").stdout)["looks"]
    assert [look["seeds"] for look in looks] == [3, 4, 5]
    assert sum(look["share"] for look in looks) == pytest.approx(1)
    assert "Rounds" not in ablate("./toy.yaml", "--dry-run").output


def test_print_config(here: Path) -> None:
    toy_study.write_study(here)
    assert "baseline: slow" in ablate("./toy.yaml", "--print-config").output


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ((), "which study? There are adaptation"),
        (("bert_size",), "did you mean 'bert_sizes'"),
        (("./none.yaml",), "there is no such file"),
        (("bert_sizes", "baseline=6layers"), "did you mean '6 layers'"),
        (("bert_sizes", "budget.step=3"), "budget.steps"),
        (("bert_sizes", "budget.steps=0"), "1 or more"),
        (("bert_sizes", "until=decided"), "seeds=[0,1,2,3,4,5,6,7,8,9]"),
        (("bert_sizes", "data.path=/no/such/file"), "/no/such/file"),
        (("bert_sizes", "finetune.tasks.sst2=null"), "fix: finetune.tasks.sst2.path=null"),
        (("bert_sizes", "finetune.train.epochs="), "train.epochs=VALUE]'"),
        (
            ("albert_sharing", "finetune.train.epochs=2"),
            "fix: 'finetune.overrides=[task.max_length=64,train.epochs=2]'",
        ),
    ],
)
def test_mistakes_end_with_2_and_one_message(words: tuple[str, ...], answer: str) -> None:
    done = ablate(*words, "--dry-run")
    assert done.exit_code == 2, done.output
    assert answer in done.stderr
    assert "Traceback" not in done.stderr


def test_a_study_that_is_edited_while_it_runs(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan of the start is carried out; table and terminal say that the file is another by
    now.
    """
    file = toy_study.write_study(here, metrics={"toy": {"of": "toy", "key": "accuracy"}})
    ran: list[int] = []

    def run(runner: Any) -> int:
        ran.append(len(runner.journal.jobs))
        file.write_text(file.read_text().replace("- 1\n", "- 1\n- 2\n", 1))
        return 1

    monkeypatch.setattr("plmctl.jobs.runners.Processes.run", run)
    done = ablate("./toy.yaml", "out=out")
    assert (done.exit_code, ran) == (1, [9])
    jobs = json.loads((here / "out" / "study.json").read_text())["jobs"]
    assert len(jobs) == 9
    assert all(
        label and name.partition("-")[0] in ("tokenize", "pretrain", "finetune", "eval")
        for name, label in jobs.items()
    )
    assert "was edited while it ran" in done.stderr
    assert "was edited while it ran" in (here / "out" / "table.md").read_text()
    assert "To go on:\n  plmctl ablate ./toy.yaml out=out" in done.stderr


def test_a_study_asks_for_its_base_once(here: Path) -> None:
    done = ablate("roberta_masking", "--dry-run")
    assert done.exit_code == 2
    assert "start='encoder'" in done.output or "start=encoder" in done.output
    assert done.output.rstrip().endswith("fix: plmctl bases make encoder")
    assert "minutes of one core" in " ".join(done.output.split())


def test_the_word_published_takes_the_other_form(here: Path) -> None:
    toy_study.write_study(here)
    file = here / "toy.yaml"
    block = "published: {corpus: many books, line: false, budget: {steps: 7},"
    block += " pretrain: {overrides: [%s, train.batch_size=3]}}"
    small = file.read_text(encoding="utf-8")
    words = ", ".join(json.dumps(word) for word in load(file)["pretrain"]["overrides"])
    file.write_text(f"{small}\n{block % words}\n", encoding="utf-8")
    shown = ablate("./toy.yaml", "published", "--dry-run")
    assert shown.exit_code == 0, shown.output
    told = " ".join(shown.output.split())
    assert "in studies/toy-published" in told
    assert "the published experiment reads: many books" in told
    plan = json.loads(ablate("./toy.yaml", "published", "--dry-run", "--json").stdout)
    printed = ablate("./toy.yaml", "published", "--print-config").output
    assert "steps: 7" in printed
    assert all(arm["tokens"] % (7 * 3) == 0 for arm in plan["arms"])
    file.write_text(small, encoding="utf-8")
    refused = ablate("./toy.yaml", "published", "--dry-run")
    assert refused.exit_code == 2
    assert "no block `published`" in refused.output


@pytest.mark.slow  # other dry runs stay
def test_a_dry_run_says_what_cannot_be_decided(here: Path) -> None:
    done = ablate(
        "bert_sizes",
        "--dry-run",
        "--json",
        "only=[12 layers]",
        "seeds=[0,1]",
        "pretrain.overrides=[size=tiny,tokenizer.vocab_size=4096,format.max_length=64]",
    )
    prospects = json.loads(done.stdout)["prospects"]
    assert prospects[0].startswith("cannot decide: all arms: at most 92,160 ")
    assert "(PostNorm) stays at the frequencies of tokens for about 600,000" in prospects[0]
    assert prospects[0].endswith("(budget.steps=2000)")
    assert any("2 seeds and 2 comparisons find" in line for line in prospects)
    assert "needs your labels: SST-2 (finetune.tasks.sst2.path=...)" in prospects
    words = ("only=[post-LN 8]", "seeds=[0,1,2,3,4,5]")
    gradients = ablate("prenorm_gradients", "--dry-run", "--json", *words)
    (seeds,) = json.loads(gradients.stdout)["prospects"]  # its metrics are of the first update
    assert seeds.startswith("6 seeds and ")
    one = json.loads(ablate("gpt_lstm", "--dry-run", "--json", "seeds=[0]").stdout)["prospects"]
    assert "cannot decide: one seed" in one[0]
