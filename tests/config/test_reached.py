"""What recipes state that they reached: read, checked, and logged beside a loss."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plmctl.config.compose import compose
from plmctl.config.reached import Reached, losses_reached, read_reached
from plmctl.config.recipes import load, recipe_names, recipes_dir
from plmctl.config.spec import thaw
from plmctl.core.errors import ConfigErrors
from plmctl.report.page import Chart
from plmctl.report.subject import find_subject
from plmctl.report.write import make_blocks
from plmctl.runs.floors import OTHERWISE, Floors
from plmctl.runs.pretraining import pretrain as train
from plmctl.training.log import format_line
from plmctl.training.progress import Progress

SLOW = Reached("slow", "mlm", "tiny", 2, 128, ((1e6, 0.02), (2e6, 0.5), (4e6, 1.5)))
FAST = Reached("fast", "mlm", "tiny", 2, 128, ((1e6, 0.8),))
FLOORS = {"unigram/mlm": 7.0, "bigram/mlm": 5.0, "unigram/clm": 7.0, "bigram/clm": 5.0}
MINE = """# @package _global_
# A recipe that states what it reached.
# Launch: plmctl pretrain mine
defaults:
  - override /tokenizer: wordpiece
  - override /objective: [mlm]
  - override /size: tiny
format: {max_length: 32}
train: {steps: 2, batch_size: 8, log_every: 1, eval_every: 1}
eval: {rows: 8}
"""
# two layers of 32, which is also what the tests train
STATED = """reached:
  mlm: {mote: {100: 0.25, 1e6: 1}}
  clm: {mote: {1e6: 1}}
"""


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """A folder of parts with the recipe `mine` and the size `mote`."""
    (tmp_path / "conf/recipes").mkdir(parents=True)
    (tmp_path / "conf/size").mkdir()
    mote = "num_layers: 2\nwidth: 32\nnum_heads: 2\ninner_width: 64\n"
    (tmp_path / "conf/size/mote.yaml").write_text(mote)
    (tmp_path / "conf/recipes/mine.yaml").write_text(MINE + STATED)
    return tmp_path / "conf"


@pytest.mark.parametrize(
    ("tokens", "share"),
    [(0, 0.0), (5e5, 0.01), (1e6, 0.02), (1.5e6, 0.26), (3e6, 1.0), (4e6, 1.5), (4e6 + 1, None)],
)
def test_a_share_is_in_proportion_between_two_points(tokens: float, share: float | None) -> None:
    known = SLOW.share_after(tokens)
    assert known == (share if share is None else pytest.approx(share))


@pytest.mark.parametrize(
    ("tokens", "losses"),
    [
        (0, {"reached/mlm": 7.0}),
        (5e5, {"reached/mlm": 7 - 0.4 * 2}),  # the faster one
        (1.5e6, {"reached/mlm": 7 - 0.26 * 2}),  # the only one that says it
        (4e6, {"reached/mlm": 4.0}),
        (5e6, {}),
    ],
)
def test_the_best_recipe_counts_in_nats_of_the_run(tokens: float, losses: dict) -> None:
    assert losses_reached([SLOW, FAST], FLOORS, tokens) == pytest.approx(losses)


def test_nothing_is_reached_without_floors_or_where_pairs_say_less_than_words() -> None:
    assert losses_reached([FAST], {}, 5e5) == {}
    assert losses_reached([FAST], {"unigram/mlm": 5.0, "bigram/mlm": 5.0}, 5e5) == {}


@pytest.mark.parametrize(
    ("recipe", "target", "sizes", "losses"),
    [
        ("modern_encoder", "mlm", {"tiny": (2, 128), "mini": (4, 256)}, [5.86, 5.39, 5.11, 4.86]),
        ("modern_decoder", "clm", {"tiny": (2, 128)}, [5.94, 5.68, 5.53, 5.38]),
    ],
)
def test_shipped_recipes_state_it_for_their_own_target(
    recipe: str, target: str, sizes: dict[str, tuple[int, int]], losses: list[float]
) -> None:
    """From the losses that were measured at size tiny, in nats, and the floors of that corpus."""
    stated = [each for each in read_reached(None) if each.recipe == recipe]
    assert {each.target for each in stated} == {target}
    assert {each.size: (each.num_layers, each.width) for each in stated} == sizes
    spec = compose("pretrain", recipe)
    assert set(spec.objective) == {target}
    assert "reached" not in thaw(spec)  # a fact of the recipe, and no setting of the run
    tiny = next(each for each in stated if each.size == "tiny")
    assert tiny.is_of(spec.size)
    for updates, loss in zip((175, 350, 525, 700), losses, strict=True):
        share = tiny.share_after(min(updates * 2048, 1.43e6))
        assert share == pytest.approx((7.06 - loss) / (7.06 - 5.59), abs=0.02)


def test_each_recipe_that_states_it_is_read() -> None:
    stating = {name for name in recipe_names() if "reached" in load(recipes_dir() / f"{name}.yaml")}
    assert stating == {statement.recipe for statement in read_reached(None)}


def test_a_recipe_of_a_plugin_and_the_file_of_the_run_are_read(conf: Path, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(MINE + "reached: {clm: {mini: {2e6: 1, 1e6: 0.5}}}\n")
    own = str(tmp_path / "own.yaml")
    more = [each for each in read_reached(own, [str(conf)]) if each not in read_reached(None)]
    assert [(each.recipe, each.target, each.num_layers, each.width) for each in more] == [
        ("mine", "mlm", 2, 32),
        ("mine", "clm", 2, 32),
        (own, "clm", 4, 256),
    ]
    assert more[-1].points == ((1e6, 0.5), (2e6, 1))


def test_all_mistakes_are_told_at_once_but_not_to_other_runs(conf: Path) -> None:
    wrong = "reached: {mlm: {tny: {1e6: 1}, tiny: {-1: 1, 5: much}, mini: {}}, clm: 3}\n"
    (conf / "recipes/mine.yaml").write_text(MINE + wrong)
    with pytest.raises(ConfigErrors) as caught:
        compose("pretrain", "mine", ["train.batch_size=-1"], config_dirs=[str(conf)])
    text = str(caught.value)
    assert "train.batch_size=-1" in text
    assert "reached.mlm.tny: there is no such size (did you mean 'tiny'?)" in text
    assert "reached.mlm.tiny={-1: 1}: must be numbers of tokens, more than 0" in text
    assert "reached.mlm.tiny={5: 'much'}: must be" in text
    assert "reached.mlm.mini={}: must be" in text
    assert "reached.clm=3: must be a group for each target" in text
    assert text.count("fix: # reached: {mlm: {tiny: {0.5e6: 0.9, 1e6: 1.2}}}") == 5
    compose("pretrain", "bert", config_dirs=[str(conf)])
    assert "mine" not in {statement.recipe for statement in read_reached(None, [str(conf)])}


def remarks(stated: list[Reached], tokens: float, **config: Any) -> list[str]:
    scores = {"loss/mlm": 7.1, "unigram/mlm": 7.0, "bigram/mlm": 5.0}
    return Floors(["mlm"], config, stated).remark(Progress(tokens=int(tokens)), scores)


TINY = {"num_layers": 2, "width": 128}


def test_a_late_run_is_told_when_others_had_left() -> None:
    """SLOW is 0.04 nats below the frequencies of tokens at its first point, which is not yet left,
    and far below at its second, after 2 M tokens.
    """
    assert remarks([SLOW], 9.9e6, size=TINY) == []
    (line,) = remarks([SLOW], 10e6, size=TINY)
    assert line == (
        "mlm: 7.100 is still at the frequencies of single tokens (7.000) after 10 M tokens;"
        f" slow (tiny) left them within 2 M. The most helpful step: {OTHERWISE}, or the recipe slow"
    )
    assert "fast (tiny) left them within 1 M" in remarks([SLOW, FAST], 10e6, size=TINY)[0]
    assert remarks([SLOW], 10e6, size=TINY, recipe="slow")[0].endswith(OTHERWISE)


def test_those_of_the_size_of_the_run_come_first() -> None:
    mini = Reached("quick", "mlm", "mini", 4, 256, ((1e5, 0.8),))
    assert "slow (tiny) left them within 2 M" in remarks([mini, SLOW], 10e6, size=TINY)[0]
    assert "quick (mini) left them within 0.1 M" in remarks([mini, SLOW], 5e5, size={"width": 9})[0]


def test_without_a_statement_of_the_target_no_other_is_named() -> None:
    other = Reached("other", "clm", "tiny", 2, 128, ((1e5, 0.8),))
    assert remarks([other], 1.9e6, size=TINY) == []
    (line,) = remarks([other], 2e6, size=TINY)
    assert line.endswith(f"after 2 M tokens. The most helpful step: {OTHERWISE}")


def run_mine(conf: Path, folder: Path, home: Path, *words: str) -> list[dict[str, Any]]:
    """The validations of a run of `mine`."""
    given = [f"data.path={home}", f"run.dir={folder}", *words]
    assert train(compose("pretrain", "mine", given, config_dirs=[str(conf)])) == 0
    records = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    return [record for record in records if "valid/loss/mlm" in record]


def test_a_run_shows_what_a_recipe_of_its_size_reached(
    conf: Path, tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    """In the file, on the line, and dashed in the report: the plug-in says it for two layers of 32,
    whatever these are called in the run.
    """
    home, small = tokens_of("wordpiece"), ["size.width=32", "size.inner_width=64"]
    records = run_mine(conf, tmp_path / "run", home, *small)
    trained = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").open()]
    tokens = [record["tokens"] for record in trained if "tokens" in record]
    for record, read in zip(records, tokens, strict=True):
        share = 0.25 + 0.75 * (read - 100) / (1e6 - 100)
        unigram, bigram = (record[f"valid/{kind}/mlm"] for kind in ("unigram", "bigram"))
        expected = unigram - share * (unigram - bigram)
        assert record["valid/reached/mlm"] == pytest.approx(expected, rel=1e-4)
    assert f"reached {records[-1]['valid/reached/mlm']:.3g}" in format_line(records[-1])
    assert not any(key.endswith("/clm") for key in records[-1])
    blocks = make_blocks(find_subject([tmp_path / "run"]))
    picture = next(block for block in blocks if isinstance(block, Chart) and block.name == "loss")
    assert "reached elsewhere (mlm)" in picture.svg
    # two levels, a line between two points, and the signs of all in the legend
    assert picture.svg.count("stroke-dasharray") == 6


@pytest.mark.parametrize("words", [["size.width=16"], ["size.width=32", "objective=[electra]"]])
def test_another_size_or_a_loss_of_a_smaller_generator_shows_nothing(
    words: list[str], conf: Path, tokens_of: Callable[..., Path], tmp_path: Path
) -> None:
    """The masked tokens of ELECTRA are predicted by its generator."""
    more = ["size.inner_width=64", "train.steps=1"]
    (record,) = run_mine(conf, tmp_path / "run", tokens_of("wordpiece"), *words, *more)
    assert "valid/bigram/mlm" in record
    assert "valid/reached/mlm" not in record
