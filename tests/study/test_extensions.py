"""The study of vocabularies that are extended for a field: what its arms begin with, what they
share, and one update of two of them.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from plmctl.artifacts.loading import find, load
from plmctl.config.build import plain
from plmctl.config.compose import compose
from plmctl.config.recipes import recipes_dir
from plmctl.config.spec import Provenance
from plmctl.core.errors import ConfigError, DataError, UsageError
from plmctl.core.pasted import spell_fix
from plmctl.jobs.runners import run_here
from plmctl.study.before import list_makers, name_maker
from plmctl.study.parse import parse
from plmctl.study.plan import StudyPlan, plan
from plmctl.study.results import Results
from plmctl.study.run import make_journal
from plmctl.study.table import make_rows
from tests.command import plmctl
from tests.study import toy_study

SIZE = ["size=tiny", "size.width=16", "size.inner_width=32", "size.num_heads=2"]
WORDS = [
    *("init=base", "data.path=corpus.txt", "finetune.tasks.docstrings.path=task"),
    "pretrain.overrides=[format.max_length=16,train.batch_size=4,train.eval_every=0]",
    "finetune.overrides=[task.max_length=16,train.steps=1,train.batch_size=4]",
    *("budget.steps=1", "seeds=[0,1]", "data.valid_share=0.1"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and what `extend` makes of it in both ways, by the names of the study."""
    place = tmp_path_factory.mktemp("extensions")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        toy_study.write_files(place)
        made = ["data.path=corpus.txt", "run.dir=base", "train.steps=1", "train.batch_size=4"]
        made += ["format.max_length=16", "tokenizer.vocab_size=270"]
        plmctl("pretrain", "gpt2", *SIZE, *made)
        for rows in ("pieces", "random"):
            asked = ["extend", "base", "data.path=corpus.txt", "tokens=5", f"rows={rows}"]
            plmctl(*asked, f"out=base-{rows}")
    return place


@pytest.fixture
def made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> StudyPlan:
    monkeypatch.chdir(folder)
    file = str(recipes_dir() / "studies/extend.yaml")
    return plan(parse(compose("ablate", file, WORDS)), Provenance("ablate"))


def test_arms_differ_in_what_they_begin_with_alone(made: StudyPlan) -> None:
    cells = {cell.arm: cell for cell in made.cells if cell.seed == 0}
    configs = {arm: dict(made.jobs[cell.pretrain or ""].config) for arm, cell in cells.items()}
    begun = {arm: config.pop("init") for arm, config in configs.items()}
    assert begun == {"old": "base", "pieces": "base-pieces", "random": "base-random"}
    assert {config["train"]["steps"] for config in configs.values()} == {1}
    for part in ("optim", "schedule", "train", "format", "model", "size"):
        assert configs["old"][part] == configs["pieces"][part] == configs["random"][part], part
    sizes = [load(Path(name)).vocab.size for name in begun.values()]
    assert sizes == [sizes[0], sizes[0] + 5, sizes[0] + 5]


@pytest.mark.slow  # test_injections.py runs arms from training to their scores, too
def test_bits_of_all_vocabularies_are_of_the_same_text(made: StudyPlan, folder: Path) -> None:
    some = made.select([cell for cell in made.cells if cell.seed == 0 and cell.arm != "random"])
    journal = make_journal(some, folder / "study")
    assert run_here(journal) == 0
    results = Results(some, journal.states, journal.locate)
    means = {(row["metric"], row["arm"]): row["mean"] for row in make_rows(some.study, results)}
    old, new = (means["bits a byte", arm] for arm in ("old", "pieces"))
    assert 0 < new != old > 0
    assert all(means["docstrings", arm] is not None for arm in ("old", "pieces"))


MAKERS = {
    "runs/wiki": "plmctl pretrain gpt2 data.path=corpus.txt run.dir=runs/wiki",
    "runs/wiki-pieces": "plmctl extend runs/wiki data.path=law.txt tokens=1000"
    " out=runs/wiki-pieces",
    "runs/wiki-random": "plmctl extend runs/wiki data.path=law.txt tokens=1000 rows=random"
    " out=runs/wiki-random",
}


def test_makers_are_the_commands_of_the_file_with_what_the_study_is_given() -> None:
    file = recipes_dir() / "studies/extend.yaml"
    assert list_makers(file, {"data": {"path": "law.txt"}}) == MAKERS
    own = list_makers(file, {"init": "my runs/a", "data": {"path": None}})
    assert own["my runs/a-random"] == (
        "plmctl extend 'my runs/a' tokens=1000 rows=random 'out=my runs/a-random'"
    )
    facts = list_makers(recipes_dir() / "studies/k_adapter.yaml", {})
    assert shlex.split(facts["runs/facts"])[-2:] == [
        "train.frozen=[backbone]",
        "run.dir=runs/facts",
    ]
    assert list_makers(recipes_dir() / "studies/bert_sizes.yaml", {}) == {}


def test_a_command_has_the_given_model_for_the_usual_one_alone(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(
        "# Before: plmctl pretrain gpt2 data.path=wiki.txt run.dir=wiki\n"
        "#         plmctl extend wiki/best data.path=old/wiki tokens=9 out=wiki-9\n"
        "# Launch: plmctl ablate own init=wiki\n"
    )
    assert list_makers(file, {"init": "my"}) == {
        "my": "plmctl pretrain gpt2 data.path=wiki.txt run.dir=my",
        "my-9": "plmctl extend my/best data.path=old/wiki tokens=9 out=my-9",
    }


@pytest.mark.parametrize(
    ("init", "fix"),
    [
        ("runs/wikj", "give runs/wiki"),
        ("bert-base-uncased", "hf download bert-base-uncased"),
        ("runs/toys", "plmctl pretrain gpt2 data.path=corpus.txt run.dir=runs/toys"),
        ("runs/wiki-random", "plmctl extend runs/wiki data.path=corpus.txt"),
    ],
)
def test_a_near_name_or_a_download_is_better_than_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, init: str, fix: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/wiki").mkdir(parents=True)
    usual = "runs/wiki" if init == "runs/wiki-random" else init
    given = {"init": usual, "data": {"path": "corpus.txt"}}
    makers = list_makers(recipes_dir() / "studies/extend.yaml", given)
    with pytest.raises(DataError) as caught:
        find(init)
    told = str(name_maker(caught.value, makers))
    assert f"{init}: there is no such run" in told
    assert f"\n  fix: {spell_fix(fix)}" in told


def test_a_slash_behind_init_is_none_of_its_name() -> None:
    """The file writes `${init}-pieces`."""
    file = str(recipes_dir() / "studies/extend.yaml")
    cfg: Any = plain(compose("ablate", file, ["init=runs/wikj/"]))
    assert cfg["init"] == "runs/wikj"
    assert cfg["arms"]["pieces"] == ["init=runs/wikj-pieces"]
    assert "runs/wikj-pieces" in list_makers(Path(file), cfg)


def test_without_init_it_says_what_comes_before() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(compose("ablate", str(recipes_dir() / "studies/extend.yaml"), []))
    commands = " && ".join(command.replace("data.path=law.txt ", "") for command in MAKERS.values())
    told = "init: must be given: the run, checkpoint or folder that the arms begin with\n  fix: "
    assert str(caught.value) == f"{told}init=RUN  # what comes before: {commands}"


def test_what_is_not_made_yet_is_told_with_the_command_that_makes_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "other").symlink_to(folder / "base")
    file = str(recipes_dir() / "studies/extend.yaml")
    settings = compose("ablate", file, ["init=other", *WORDS[1:]])
    with pytest.raises(UsageError) as caught:
        plan(parse(settings), Provenance("ablate"))
    told = str(caught.value)
    assert "arm 'old'" not in told
    for name in ("pieces", "random"):
        rows = "rows=random " if name == "random" else ""
        command = f"plmctl extend other data.path=corpus.txt tokens=1000 {rows}out=other-{name}"
        assert f"arm '{name}': other-{name}: there is no such run" in told
        assert f"\n  fix: {command}\n" in f"{told}\n"
