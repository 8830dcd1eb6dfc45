"""Arms that give their model tokens before it is fine-tuned: what is planned, what runs, and what
is refused.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from plmctl.artifacts.loading import load
from plmctl.config.compose import compose
from plmctl.config.recipes import recipes_dir
from plmctl.config.spec import Provenance
from plmctl.core.errors import UsageError
from plmctl.jobs.key import compute_key
from plmctl.jobs.runners import run_here
from plmctl.study.parse import parse
from plmctl.study.plan import StudyCell, StudyPlan, plan
from plmctl.study.results import Results
from plmctl.study.run import make_journal
from plmctl.study.study import Study
from plmctl.study.table import make_rows
from tests.command import plmctl
from tests.study import toy_study

RARE = ["treehouse", "moonstone", "birdriver"]
SMALL = ["size=tiny", "size.width=16", "size.inner_width=32", "size.num_heads=2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, words with contexts, rare ones, a list of pairs, and a task."""
    place = tmp_path_factory.mktemp("words")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        toy_study.write_files(place)
        text = (place / "corpus.txt").read_text(encoding="utf-8")
        more = "\n\n".join(f"the {word} sees a dog. big {word} walks." for word in RARE)
        text = text.replace(" red ", " : red ")  # a mark that stands before contexts
        (place / "corpus.txt").write_text(f"{text}\n\n{more}", encoding="utf-8")
        (place / "rare.txt").write_text("\n".join(RARE), encoding="utf-8")
        pairs = [
            f"{rare}\t{word}\t{len(rare) * n % 7}\n"
            for rare in RARE
            for n, word in enumerate(toy_study.WORDS)
        ]
        (place / "pairs.txt").write_text("".join(pairs), encoding="utf-8")
        made = ["data.path=corpus.txt", "run.dir=base", "train.steps=1", "train.batch_size=4"]
        made += ["format.max_length=32", "tokenizer.vocab_size=100"]
        plmctl("pretrain", "bert", *SMALL, *made)
        plmctl("data", "contexts", "data.path=corpus.txt", "least=20", "contexts=4", "out=words")
        plmctl("data", "contexts", "data.path=corpus.txt", "words=rare.txt", "out=rare")
    return place


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


WORDS = [
    *("init=base", "eval.similarity.path=pairs.txt", "finetune.tasks.docstrings.path=task"),
    "pretrain.overrides=[data.path=words,format.max_length=16,train.batch_size=4,"
    "heads.mimic.often=20,heads.mimic.ngrams=50,train.eval_every=0,data.valid_share=0.1]",
    "finetune.overrides=[task.max_length=16,train.steps=1,train.batch_size=4]",
    *("budget.steps=4", "seeds=[0,1]"),
]


def parsed(name: str, *words: str) -> Study:
    file = str(recipes_dir() / "studies" / f"{name}.yaml")
    return parse(compose("ablate", file, list(words)))


@pytest.fixture(scope="module")
def bertram(folder: Path) -> StudyPlan:
    """The plan of the shipped study."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return plan(parsed("bertram", *WORDS), Provenance("ablate"))


def cells_of(made: StudyPlan, seed: int) -> dict[str, StudyCell]:
    return {cell.arm: cell for cell in made.cells if cell.seed == seed}


@pytest.mark.slow  # test_arms_run_from_training_to_their_scores stays
def test_what_arms_of_bertram_share_and_what_they_do_alone(bertram: StudyPlan) -> None:
    jobs, cells = bertram.jobs, cells_of(bertram, 0)
    # letters and the contexts of others are read by the run that reads both
    pretrained = {arm: cell.pretrain for arm, cell in cells.items()}
    assert pretrained["add"] == pretrained["form"] == pretrained["shuffled"]
    assert pretrained["context"] not in (None, pretrained["add"])
    assert {arm for arm, name in pretrained.items() if name is None} == {
        *("without", "random", "pieces")
    }
    injected = {arm: jobs[cell.inject] for arm, cell in cells.items() if cell.inject}
    assert list(injected) == ["add", "form", "context", "shuffled", "random", "pieces"]
    assert len({job.name for job in injected.values()}) == 6
    for arm, job in injected.items():
        start = pretrained[arm]
        assert job.needs == ((start,) if start else ())
        assert (job.config["into"], job.config["form"]) == ("base", "replace")
        for name in [*cells[arm].tuned["docstrings"][0], *cells[arm].evals["similarity"].values()]:
            assert jobs[name].needs == (job.name,)
    assert injected["random"].config["checkpoint"] == "base"
    (alone,) = cells["without"].evals["similarity"].values()
    assert jobs[alone].config["checkpoint"] == "base"
    # what draws does so by the seed of its cell, what does not is the same for all
    others = cells_of(bertram, 1)
    assert others["random"].inject != cells["random"].inject
    assert others["pieces"].inject == cells["pieces"].inject


def test_other_contexts_make_another_job(tmp_path: Path) -> None:
    config = {"words": str(tmp_path), "into": str(tmp_path), "checkpoint": "job:x"}
    before = compute_key("inject", config)
    (tmp_path / "words.tsv").write_text("cat\n", encoding="utf-8")
    after = {name: compute_key("inject", {**config, name: "elsewhere"}) for name in config}
    assert len({before, compute_key("inject", config), *after.values()}) == 5


def test_arms_run_from_training_to_their_scores(bertram: StudyPlan, here: Path) -> None:
    cells = cells_of(bertram, 0)
    some = bertram.select([cells[arm] for arm in ("without", "add")])
    journal = make_journal(some, here / "study")
    assert run_here(journal) == 0
    results = Results(some, journal.states, journal.locate)
    means = {(row["metric"], row["arm"]): row["mean"] for row in make_rows(some.study, results)}
    for metric in ("word similarity", "docstrings"):
        assert all(means[metric, cell.arm] is not None for cell in some.cells), means
    assert len({means["word similarity", cell.arm] for cell in some.cells}) == 2
    made = load(journal.locate(cells["add"].inject or "") / "run")
    assert made.vocab.size == load(here / "base").vocab.size + len(RARE)
    assert "mlm" in made.model.heads
    assert not list(make_journal(some, here / "study").ready())  # a second start


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("inject=[checkpoint=base]", "inject='checkpoint=base': is decided by the study"),
        ("arms.add.inject=[out=x]", "arms.add.inject='out=x': is decided by the study"),
        ("arms.add={pretrain: false, inject: []}", "arms.add.inject: needs a model that gets"),
    ],
)
def test_settings_that_no_arm_can_have(word: str, answer: str, here: Path) -> None:
    with pytest.raises(UsageError) as error:
        parsed("bertram", *WORDS, word)
    assert answer in str(error.value)


def test_the_model_of_all_arms_must_be_given() -> None:
    with pytest.raises(UsageError, match=r"^init: must be given: .*\n  fix: init=.*before: p"):
        parsed("bertram")


def test_settings_of_injections_that_nothing_uses(here: Path) -> None:
    with pytest.raises(UsageError, match=r"inject=.*no arm injects.*\n  fix: 'inject="):
        parsed("electra_tying", "inject=[words=rare]")


@pytest.mark.slow  # test_a_problem_of_several_arms_is_told_once stays
def test_arms_that_could_not_inject_are_named_before_anything_runs(here: Path) -> None:
    arms = (
        "{without: {checkpoint: base}, mute: {checkpoint: base, inject: []},"
        " lost: {checkpoint: base, inject: [word_vectors=pieces, words=nowhere]},"
        " odd: {checkpoint: base, inject: [word_vectors=pieces, wrods=rare]}}"
    )
    study = parsed("bertram", *WORDS, f"arms={arms}")
    with pytest.raises(UsageError) as error:
        plan(study, Provenance("ablate"))
    text = str(error.value)
    assert "arm 'mute': checkpoint: a model with the head mimic" in text
    assert "arm 'lost': nowhere: no such file" in text
    assert "did you mean 'words'" in text


def test_a_problem_of_several_arms_is_told_once(here: Path) -> None:
    lost = "{checkpoint: base, inject: [word_vectors=pieces, words=nowhere]}"
    study = parsed("bertram", *WORDS, f"arms={{a: {lost}, b: {lost}, c: {lost}}}", "baseline=a")
    with pytest.raises(UsageError) as error:
        plan(study, Provenance("ablate"))
    text = str(error.value)
    assert text.startswith("arm 'a', arm 'b' and arm 'c': nowhere: no such file")
    assert text.count("nowhere: no such file") == 1
