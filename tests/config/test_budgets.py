"""`train.minutes`: a recipe's table of budgets, read by the speed of this machine, which is kept in
the cache folder.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from plmctl.cli.app import make_app
from plmctl.config import speed
from plmctl.config.compose import Composition, attempt_jobs, compose, composed
from plmctl.config.groups import Train
from plmctl.config.recipes import load, recipes_dir
from plmctl.config.spec import Provenance, thaw
from plmctl.core.errors import ConfigErrors, UsageError
from plmctl.core.spelling import spell
from plmctl.jobs.key import compute_key
from plmctl.runs.contract.contract import check_contract
from plmctl.runs.resume import resume_spec
from plmctl.storage.rates import FILE
from plmctl.study.parse import parse
from plmctl.study.plan import plan
from plmctl.training.device import peak
from plmctl.training.device.precision import choose

MINE = """# @package _global_
# A recipe with a table of its own.
# Launch: plmctl pretrain mine
defaults:
  - override /tokenizer: wordpiece
  - override /objective: [mlm]
  - override /schedule: wsd
  - override /size: tiny
format: {max_length: 32}
optim: {lr: 1e-2}
train: {steps: 5, batch_size: 2, log_every: 0}
"""
TABLE = """budgets:
  - {up_to: 1e12, size: tiny, optim.lr: 3e-3, train.batch_size: 8, schedule.decay_share: 0.5}
  - {up_to: 1e14, size: mini, optim.lr: 1e-3, schedule.decay_share: 0.3,
      train.batch_size: "${quotient:512,${format.max_length}}"}
  - {up_to: 1e15, size: mini, optim.lr: 5e-4, train.batch_size: 64}
  - {size: small, optim.lr: 2e-4, train.batch_size: 64}
"""
RATE, WIDTH = 1e11, 256  # FLOP/s that a model of this width reaches here: 6e12 FLOPs a minute


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the recipe `mine` and a cache of its own, in which this machine is known; it
    has no GPU.
    """
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLMCTL_CACHE", str(tmp_path / "cache"))
    write_recipe(TABLE)
    set_rate(RATE)
    return tmp_path


def write_recipe(table: str) -> None:
    Path("conf/recipes").mkdir(parents=True, exist_ok=True)
    Path("conf/recipes/mine.yaml").write_text(MINE + table, encoding="utf-8")


def set_rate(rate: float) -> None:
    """Keep the peak of which training reaches `rate`."""
    name = peak.name_machine(choose("auto", torch.device("cpu")))
    Path("cache").mkdir(exist_ok=True)
    whole = peak.usual_share(choose("auto", torch.device("cpu")), WIDTH) * torch.get_num_threads()
    Path("cache", FILE).write_text(json.dumps({name: rate / whole}), encoding="utf-8")


def mine(*words: str) -> Any:
    return compose("pretrain", "mine", words, config_dirs=["conf"])


def facts(spec: Any) -> tuple[Any, ...]:
    return spec.size.num_layers, spec.size.width, spec.optim.lr, spec.train.batch_size


def command(*words: str, code: int = 0) -> Any:
    done = CliRunner().invoke(make_app(), [*words, "--config-dir", "conf"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("minutes", "row"),
    [
        (0.1, (2, 128, 3e-3, 8)),
        (1, (4, 256, 1e-3, 16)),
        (20, (4, 256, 5e-4, 64)),
        (1000, (4, 512, 2e-4, 64)),
    ],
)
def test_the_row_of_the_budget_counts(minutes: float, row: tuple[Any, ...]) -> None:
    spec = mine(f"train.minutes={minutes}")
    assert facts(spec) == row
    assert (spec.train.minutes, spec.train.steps, spec.budgets) == (minutes, None, ())
    narrow, usual = (
        peak.usual_share(choose("auto", torch.device("cpu")), w) for w in (row[1], WIDTH)
    )
    rate = RATE * narrow / usual
    assert spec.provenance.decision.flops == pytest.approx(60 * minutes * rate, rel=0.01)


def test_a_narrow_model_has_less_of_the_processor() -> None:
    """FLOPs of 14 seconds: more than the first row has at full speed, and less at its width."""
    fp32 = "train.precision=fp32"
    shares = {w: peak.usual_share(choose("fp32", torch.device("cpu")), w) for w in (128, math.inf)}
    name = peak.name_machine(choose("fp32", torch.device("cpu")))
    found = 1e11 / shares[math.inf] / torch.get_num_threads()
    Path("cache", FILE).write_text(json.dumps({name: found}), encoding="utf-8")
    minutes = 1.05e12 / 1e11 / 60
    assert mine(f"train.minutes={minutes}", fp32).size.width == 128
    assert mine(f"train.minutes={1.2 * minutes}", fp32).size.width == 256
    reached = mine(f"train.minutes={minutes}", fp32).provenance.decision.rate
    assert reached == pytest.approx(1e11 * shares[128] / shares[math.inf])


@pytest.mark.parametrize("words", [["train.steps=9"], ["train.minutes=1", "budgets=[]"]])
def test_otherwise_the_recipe_stays_as_it_is(words: list[str]) -> None:
    spec = mine(*words)
    assert (facts(spec), spec.budgets, spec.provenance.decision) == ((2, 128, 1e-2, 2), (), None)


def test_a_recipe_without_a_table_stays_as_it_is() -> None:
    spec = compose("pretrain", "bert", ["train.minutes=100"])
    before = compose("pretrain", "bert", ["train.steps=100"])
    assert facts(spec) == facts(before)
    assert spec.provenance.decision is None
    assert not Path("cache", "speed.json").read_text(encoding="utf-8").count("thread, fp32") > 1


def test_what_is_given_wins_and_the_rest_follows() -> None:
    spec = mine("train.minutes=1", "optim.lr=7e-3", "format.max_length=64", "size.width=64")
    assert facts(spec) == (4, 64, 7e-3, 8)  # 512 tokens in rows of 64
    assert spec.schedule.decay_share == 0.3
    line = str(spec.provenance.decision)
    assert line == (
        "1 minute on this machine is about 3.8e12 FLOPs: size=mini schedule.decay_share=0.3"
        " train.batch_size=8 (set any of them to choose it yourself)"
    )


def test_a_part_that_is_given_keeps_the_settings_of_the_recipe() -> None:
    """Those of the table are for the part that the recipe has: another may lack them."""
    spec = mine("train.minutes=1", "optim=muon", "schedule=linear")
    assert (spec.optim.lr, spec.train.batch_size, spec.size.width) == (1e-2, 16, 256)
    assert spec.schedule["_target_"].endswith("Polynomial")
    sources = spec.provenance.decision.sources
    assert sources["optim.lr"] == (1e-2, "as the recipe has it: optim=muon is given")
    assert sources["train.batch_size"] == (16, "budgets.1: up to 1e14 FLOPs")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("words", "row"),
    [
        (["train.minutes=1000", "size=tiny"], (2, 128, 3e-3, 8)),
        (["train.minutes=0.1", "size=mini"], (4, 256, 1e-3, 16)),
        (["train.minutes=1000", "size=mini"], (4, 256, 5e-4, 64)),
        (["train.minutes=1", "size=medium"], (8, 512, 1e-3, 16)),  # no row has it
    ],
)
def test_of_rows_with_the_given_size_the_nearest_counts(
    words: list[str], row: tuple[Any, ...]
) -> None:
    assert facts(mine(*words)) == row


def test_minutes_may_stand_in_the_recipe() -> None:
    text = MINE.replace("steps: 5", "minutes: 1")
    Path("own.yaml").write_text(text + TABLE, encoding="utf-8")
    assert facts(compose("pretrain", "./own.yaml")) == (4, 256, 1e-3, 16)
    assert facts(compose("pretrain", "./own.yaml", ["train.steps=5"])) == (2, 128, 1e-2, 2)


def test_trained_weights_are_trained_on_as_before() -> None:
    """Their size is their own, and no row is known to suit it."""
    spec = mine("train.minutes=1", "init=somewhere")
    assert (facts(spec), spec.provenance.decision) == ((2, 128, 1e-2, 2), None)


@pytest.mark.parametrize(
    ("minutes", "words"),
    [
        (1, ["size=tiny", "format.max_length=64", "optim.lr=0.002", "train.batch_size=32"]),
        (10, ["size=mini", "format.max_length=64", "optim.lr=0.002", "train.batch_size=32"]),
        (60, ["size=mini", "format.max_length=128", "optim.lr=0.002", "train.batch_size=32"]),
    ],
)
def test_modern_encoder_on_two_cores(minutes: float, words: list[str]) -> None:
    """What recipes/modern_encoder.yaml says, at the speed of a small machine."""
    set_rate(1.5e11)
    decision = compose("pretrain", "modern_encoder", [f"train.minutes={minutes}"]).provenance
    assert sorted(decision.decision.words) == sorted(words)


def shipped_rows() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(recipes_dir().glob("*.yaml")):
        yield from ((file.stem, row) for row in load(file).get("budgets", ()))


def test_the_modern_recipes_have_tables() -> None:
    assert {"modern_encoder", "modern_decoder", "modern_electra"} <= {
        name for name, _ in shipped_rows()
    }


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("recipe", "row"), [*shipped_rows()])
def test_every_row_of_a_recipe_composes_and_fits(recipe: str, row: dict[str, Any]) -> None:
    """A run of a budget takes its row, and 2 processes share the rows of a batch."""
    minutes = row.get("up_to", 1e30) / RATE / 60 * 0.8  # wide models reach more than RATE
    spec = compose("pretrain", recipe, [f"train.minutes={minutes}"])
    check_contract(spec)
    decided = dict(word.split("=") for word in spec.provenance.decision.words)
    assert decided.keys() == row.keys() - {"up_to"}
    for key, value in row.items():
        if key in decided and "${" not in str(value):
            assert decided[key] == spell(value)
    assert spec.train.batch_size % 2 == 0


def test_the_jobs_of_a_sweep_are_decided_one_by_one() -> None:
    words = ("train.minutes=0.1,20", "seed=1,2")
    given = Provenance("pretrain", "mine", words, config_dirs=("conf",))
    jobs = attempt_jobs(given)
    assert jobs is not None
    widths = []
    for job in jobs:
        assert isinstance(job, Composition)
        assert not job.errors
        widths.append((job.spec.train.minutes, job.spec.size.width))
        assert not {"size", "optim.lr"} & {word.key for word in job.words}  # as they were typed
    assert widths == [(0.1, 128), (0.1, 128), (20, 256), (20, 256)]


@pytest.mark.slow  # test_the_jobs_of_a_sweep_are_decided_one_by_one stays
def test_a_sweeper_of_hydra_has_its_jobs_decided_too() -> None:
    done = command(
        *("pretrain", "mine", "-m", "train.minutes=0.1,20", "hydra/sweeper=basic", "--dry-run")
    )
    lines = re.findall(r"are about (\S+) FLOPs: (size=\w+)", done.stderr)
    assert lines == [("6e11", "size=tiny"), ("1.2e14", "size=mini")]


def test_dry_run_says_what_was_decided_and_why() -> None:
    words = ("pretrain", "mine", "train.minutes=1", "optim.lr=7e-3", "--dry-run")
    done = command(*words)
    assert "Decided by train.minutes" in done.stdout
    assert done.stderr.startswith("1 minute on this machine is about 6e12 FLOPs: size=mini")
    report = json.loads(command(*words, "--json").stdout)["minutes"]
    assert report["size"] == "mini (budgets.1: up to 1e14 FLOPs)"
    assert report["optim.lr"] == "7e-3 (given)"
    assert report["FLOPs in this time, about"] == "6e12"
    assert "minutes" not in json.loads(command("pretrain", "mine", "--dry-run", "--json").stdout)
    shown = command("pretrain", "mine", "train.minutes=1", "--print-config").stdout
    assert shown.startswith("# 1 minute on this machine is about 6e12 FLOPs: size=mini")
    assert "up_to" not in shown


@pytest.mark.slow  # test_a_run_from_before_there_were_tables_can_be_made_longer stays
def test_a_resumed_run_keeps_what_was_decided(tokens_of: Callable[..., Path]) -> None:
    """On a machine of another speed, and for another length."""
    data = f"data.path={tokens_of('wordpiece')}"
    small = ("size.width=32", "size.inner_width=64", "eval.rows=4")
    done = command("pretrain", "mine", data, "train.minutes=0.01", *small, "run.dir=run")
    assert "on this machine are about 6e10 FLOPs: size=tiny" in done.stderr
    first = Path("run/overrides.txt").read_text(encoding="utf-8").splitlines()
    assert first[:2] == ["mine", "size=tiny"]
    set_rate(1e16)
    given = Provenance("pretrain", None, ("run.dir=run", "train.minutes=0.02"), ("conf",))
    spec = resume_spec(given)
    assert spec.provenance.changes == ("train.minutes: 0.01 -> 0.02",)
    assert facts(spec) == (2, 32, 3e-3, 8)
    assert spec.provenance.decision is None
    again = command("pretrain", "--resume", "run.dir=run", "train.minutes=0.02")
    assert "resumed with another train.minutes: 0.01 -> 0.02" in again.output
    assert "FLOPs" not in again.output
    with pytest.raises(UsageError, match="size='mini': changes"):
        resume_spec(Provenance("pretrain", None, ("run.dir=run", "size=mini"), ("conf",)))


def test_a_run_from_before_there_were_tables_can_be_made_longer(
    tokens_of: Callable[..., Path],
) -> None:
    write_recipe("")
    data = f"data.path={tokens_of('wordpiece')}"
    small = ("size.width=32", "size.inner_width=64", "eval.rows=4")
    command("pretrain", "mine", data, "train.minutes=0.01", *small, "run.dir=run")
    config = Path("run/config.yaml")
    text = config.read_text(encoding="utf-8").replace("budgets: []\n", "")
    config.write_text(text, encoding="utf-8")
    write_recipe(TABLE)
    spec = resume_spec(Provenance("pretrain", None, ("run.dir=run", "train.minutes=9"), ("conf",)))
    assert facts(spec) == (2, 32, 1e-2, 2)


def study_of(arms: dict[str, Any], *words: str, processes: int = 1) -> Any:
    lines = {"pretrain": {"recipe": "mine", "overrides": ["seed=3"]}, "arms": arms, "seeds": [0]}
    lines |= {"baseline": "plain", "budget": {"minutes": 1}}
    lines |= {"metrics": {"loss": {"of": "pretrain", "key": "loss"}}}
    Path("study.yaml").write_text(f"# @package _global_\n{json.dumps(lines)}\n", encoding="utf-8")
    study = parse(compose("ablate", "./study.yaml", words, config_dirs=("conf",)))
    return plan(study, Provenance("ablate", config_dirs=("conf",)), processes)


@pytest.mark.slow  # test_a_study_that_fixes_the_size_has_the_rest_decided_for_it stays
def test_the_arms_of_a_study_differ_in_nothing_but_their_own_settings() -> None:
    """What the budget decides is the same for all, however long or large an arm is."""
    arms = {
        "plain": [],
        "rate": ["optim.lr=9e-3"],
        "muon": ["optim=muon"],
        "longer": {"times": 100},
        "other": {"recipe": "bert", "overrides": ["objective=[mlm]", "size=tiny"]},
        "large": ["size=small"],
    }
    planned = study_of(arms)
    made = {name: arm.pretrain for name, arm in planned.arms.items()}
    pick = {
        name: (config["size"]["width"], config["optim"]["lr"], config["train"]["batch_size"])
        for name, config in made.items()
    }
    assert pick["plain"] == pick["longer"] == (256, 1e-3, 16)
    assert pick["rate"] == (256, 9e-3, 16)
    assert pick["muon"] == (256, 1e-2, 16)  # as the recipe has it
    assert pick["large"] == (512, 1e-3, 16)
    bert = compose("pretrain", "bert")
    assert pick["other"] == (128, bert.optim.lr, bert.train.batch_size)
    assert made["longer"]["train"]["minutes"] == 100
    assert [str(name) for name in planned.decisions] == ["mine"]


def test_a_study_that_fixes_the_size_has_the_rest_decided_for_it() -> None:
    words = ("pretrain.overrides=[size=tiny]",)
    planned = study_of({"plain": [], "seeded": ["train.clip=2"]}, *words)
    config = planned.arms["plain"].pretrain
    assert (config["size"]["width"], config["optim"]["lr"]) == (128, 3e-3)
    fixed = ("pretrain.overrides=['budgets=[]']",)
    config = study_of({"plain": [], "seeded": ["train.clip=2"]}, *fixed).arms["plain"].pretrain
    assert (config["size"]["width"], config["optim"]["lr"]) == (128, 1e-2)


def test_jobs_side_by_side_share_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("plmctl.study.composing.count_processors", lambda: 8)
    planned = study_of({"plain": [], "seeded": ["train.clip=2"]}, processes=2)
    (decision,) = planned.decisions.values()
    assert decision.rate == pytest.approx(4 * RATE)  # the fixture's machine has one thread


def test_a_chain_writes_out_what_was_decided() -> None:
    done = command("recipes", "run", "mine", "train.minutes=1", "tasks=none", "--dry-run")
    assert done.stderr.startswith("pretrain: 1 minute on this machine is about 6e12 FLOPs")
    (line,) = [line for line in done.stdout.splitlines() if " pretrain " in line]
    assert "plmctl pretrain mine size=mini optim.lr=0.001" in line
    assert "train.minutes=1 'budgets=[]'" in line


def test_a_table_makes_no_other_job() -> None:
    config = thaw(mine("train.steps=5"))
    key = compute_key("pretrain", config)
    assert compute_key("pretrain", config | {"budgets": [{"size": "tiny"}]}) == key
    del config["budgets"]
    assert compute_key("pretrain", config) == key


WRONG = """budgets:
  - {size: tiny, optim.lr: 3e-3}
  - {up_to: -1, size: mini}
  - {up_to: 1e12}
  - {up_to: 1e12, optim: {lr: 1e-3}}
  - {up_to: 1e13, train.steps: 100}
  - {up_to: lots, size: small}
"""


def test_all_mistakes_in_the_form_of_a_table_are_told_at_once() -> None:
    """Whether it is used or not."""
    write_recipe(WRONG)
    with pytest.raises(ConfigErrors) as caught:
        mine("train.steps=5")
    text = str(caught.value)
    for words in (
        "budgets.0: needs up_to, the FLOPs up to which it holds; only the last row has none",
        "budgets.1.up_to=-1: a number of FLOPs, more than 0",
        "budgets.2: a row has the settings for its budget\n  fix: # size: tiny, optim.lr: 2e-3",
        "budgets.3.up_to=1000000000000.0: more than 1e+12, that of the row before it",
        "budgets.3.optim: a value; a setting inside of another has a dotted key"
        "\n  fix: # optim.lr: ...",
        "budgets.4.train.steps=100: a table decides no length of a run",
        "budgets.5.up_to='lots': a number of FLOPs, more than 0",
    ):
        assert words in text
    assert len(caught.value.errors) == 7


def test_settings_of_a_table_that_do_not_exist() -> None:
    write_recipe(
        "budgets:\n  - {up_to: 1e14, optim.lrr: 1e-3, train.batch_size: many}\n  - {size: mini}\n"
    )
    with pytest.raises(ConfigErrors) as caught:
        mine("train.minutes=1")
    text = str(caught.value)
    assert "budgets.0.optim.lrr='0.001': there is no such setting (did you mean" in text
    assert "budgets.0.train.batch_size='many': must be a whole number" in text
    write_recipe("budgets:\n  - {up_to: 1e14, size: mini}\n  - {size: hug, tokenizer: wordpeace}\n")
    with pytest.raises(ConfigErrors) as caught:
        mine("train.minutes=1")
    text = str(caught.value)
    assert "budgets.1.size='hug': there is no such size" in text
    assert "budgets.1.tokenizer='wordpeace': there is no such tokenizer (did you mean" in text
    for table, message in (
        ("3", "budgets=3: must be a list, like"),
        ("[tiny]", r"budgets=\['tiny'\]: must be a mapping of names to values"),
    ):
        write_recipe(f"budgets: {table}\n")
        with pytest.raises(UsageError, match=message):
            mine("train.minutes=1")


def test_a_device_that_is_not_there_is_said() -> None:
    with pytest.raises(UsageError, match=r"train\.device='cuda': this torch sees no GPU"):
        mine("train.minutes=1", "train.device=cuda")


def test_the_speed_is_measured_once_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = iter([2e11, 3e11])
    monkeypatch.setattr(peak, "measure_rate", lambda *_: next(rates))
    share = peak.usual_share(choose("auto", torch.device("cpu")))
    folder = tmp_path / "other" / "cache"
    for _ in range(2):
        assert speed.estimate_rate(Train(), str(folder)) == pytest.approx(share * 2e11)
    twice = speed.estimate_rate(Train(processes=2), str(folder))  # each has its own threads
    assert twice == pytest.approx(2 * share * 2e11)
    (folder / FILE).write_text("{damaged", encoding="utf-8")
    assert speed.estimate_rate(Train(), str(folder)) == pytest.approx(share * 3e11)
    assert list(json.loads((folder / FILE).read_text(encoding="utf-8")).values()) == [3e11]


def test_a_cache_that_cannot_be_written_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peak, "measure_rate", lambda *_: 4e11)
    (tmp_path / "file").write_text("", encoding="utf-8")
    rate = speed.estimate_rate(Train(), str(tmp_path / "file" / "cache"))
    assert rate == pytest.approx(peak.usual_share(choose("auto", torch.device("cpu"))) * 4e11)


def test_what_is_measured_is_a_speed() -> None:
    assert peak.measure_rate(torch.device("cpu"), "fp32", seconds=0.01) > 1e8


def test_a_plugin_of_ones_own_is_kept_in_mind() -> None:
    """The words of a recipe's row may choose parts of the user's own folder."""
    Path("conf/size").mkdir()
    text = "# one layer\nnum_layers: 1\nwidth: 64\nnum_heads: 2\ninner_width: 128\n"
    Path("conf/size/mote.yaml").write_text(text, encoding="utf-8")
    write_recipe("budgets:\n  - {size: mote, optim.betas: [0.9, 0.95]}\n")
    given = Provenance("pretrain", "mine", ("train.minutes=1",), config_dirs=("conf",))
    spec = composed(given).spec
    assert (spec.size.width, spec.optim.betas) == (64, (0.9, 0.95))
    assert spec.provenance.decision.words == ("size=mote", "optim.betas=[0.9,0.95]")
