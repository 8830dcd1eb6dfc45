"""The published form of a study: what its block changes, and that every shipped one composes at the
size of its paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from plmctl.artifacts.assemble import build_model, without_weights
from plmctl.config.compose import compose
from plmctl.config.headers import header
from plmctl.config.published import name_other_block, take_published_form
from plmctl.config.recipes import load, recipes_dir
from plmctl.config.spec import Provenance, key_of
from plmctl.core.errors import UsageError
from plmctl.nn.tables import count
from plmctl.study.before import list_replaced
from plmctl.study.parse import parse
from plmctl.study.study import Study

FILES = {file.stem: file for file in sorted((recipes_dir() / "studies").glob("*.yaml"))}
PUBLISHED = [name for name, file in FILES.items() if isinstance(load(file)["published"], Mapping)]
LENGTH = "task.max_length"
TOLERANCE = 0.05  # papers round to a million, and count heads or do not
ABOUT = {"transformer": 0.1}  # "about 37000 tokens": all arms have 2 M fewer than in table 3


def published(name: str, *words: str) -> Study:
    return parse(compose("ablate", str(FILES[name]), ["scale=published", *words]))


def count_parameters(study: Study) -> dict[str, tuple[float, int]]:
    """{arm: (parameters in millions, rows of an update)}, each model built once, without memory."""
    counts: dict[tuple[object, ...], tuple[float, int]] = {}
    for arm in study.arms.values():
        if (key := (arm.recipe, arm.overrides)) not in counts:
            words = [*study.pretrain, *arm.overrides, "data.path=x"]
            spec = compose("pretrain", arm.recipe, words)
            with without_weights():
                model = build_model(spec, vocab_size=int(spec.tokenizer.vocab_size or 256))
            counts[key] = count(model) / 1e6, int(spec.train.batch_size)
    return {name: counts[arm.recipe, arm.overrides] for name, arm in study.arms.items()}


def test_every_study_has_a_published_block_or_says_why_not() -> None:
    assert len(FILES) == 90
    assert len(PUBLISHED) == 70
    for name in set(FILES) - set(PUBLISHED):
        with pytest.raises(UsageError, match=f"{name}: no published experiment: .{{20,}}"):
            published(name)


@pytest.mark.sampled(5)  # tests/study/test_shipped_studies.py composes each
@pytest.mark.parametrize("name", PUBLISHED)
def test_every_arm_has_the_published_size(name: str) -> None:
    stated = load(FILES[name])["published"]
    assert stated["corpus"]
    study = published(name, *(["init=x"] if "${init}" in FILES[name].read_text() else []))
    sizes = stated["parameters"]
    counted = count_parameters(study)
    assert counted.keys() == (sizes.keys() if isinstance(sizes, Mapping) else counted.keys())
    for arm, (millions, _) in counted.items():
        known = sizes[arm] if isinstance(sizes, Mapping) else sizes
        assert millions == pytest.approx(known, rel=ABOUT.get(name, TOLERANCE)), arm


def test_rows_of_tasks_fit_into_those_of_the_pretraining() -> None:
    """Where a study begins with new weights, so that its own rows are the longest."""
    asked = {}
    for name in PUBLISHED:
        stated = load(FILES[name])["published"]
        words = (stated.get("finetune") or {}).get("overrides") or []
        lengths = [int(word.partition("=")[2]) for word in words if key_of(word) == LENGTH]
        if lengths and "init=" not in stated["corpus"]:
            study = published(name, *(["init=x"] if "${init}" in FILES[name].read_text() else []))
            arm = next(iter(study.arms.values()))
            own = [*study.pretrain, *arm.overrides, "data.path=x"]
            asked[name] = lengths[0], compose("pretrain", arm.recipe, own).format.max_length
    assert asked["mass_span"] == (100, 100)
    assert not {name: pair for name, pair in asked.items() if pair[0] > pair[1]}


@pytest.mark.sampled(2)
# (rows of an update, updates) of the papers
@pytest.mark.parametrize(
    ("name", "rows", "updates"),
    [
        ("bert_sizes", 256, 1e6),
        ("albert_sharing", 4096, 125_000),
        ("roberta_masking", 256, 1e6),
        ("roberta_data", 8192, 1e5),
        ("electra", 256, 766_000),
        ("spanbert_schemes", 256, 1.2e6),
        ("t5_objectives", 128, 2**19),
        ("gpt_pretraining", 64, 3e6),
        ("wklm", 128, 1e6),
        ("transformer_xl", 60, 200_000),
        ("adaptive_span", 64, 600_000),
    ],
)
def test_batches_and_updates_are_those_of_the_paper(name: str, rows: int, updates: float) -> None:
    study = published(name)
    assert study.budget == ("steps", updates)
    assert {batch for _, batch in count_parameters(study).values()} == {rows}


def test_berts_table_6_is_counted_by_hand() -> None:
    """No arm stays small: V x H + (512 + 2) x H + layers of 12 H^2, and what is linear in H."""
    for arm, (millions, _) in count_parameters(published("bert_sizes")).items():
        layers, width = {"12 wide layers": (12, 1024), "24 wide layers": (24, 1024)}.get(
            arm, (int(arm.split()[0]), 768)
        )
        table = (30522 + 512 + 2 + 2) * width
        layer = 12 * width**2 + 13 * width  # 4 maps and 2; their biases, 4 + 4 + 1; two norms
        heads = 2 * (width**2 + width) + 2 * width + 30522 + 2 * width + 2  # pooler, mlm, nsp
        assert millions * 1e6 == table + layers * layer + heads, arm


@pytest.mark.parametrize("name", FILES)
def test_another_block_is_said_at_once(name: str) -> None:
    other = name_other_block(load(FILES[name]))
    assert not other or f"? On {other}." in header(FILES[name]).about


def test_some_blocks_are_others() -> None:
    named = {name: name_other_block(load(FILES[name])) for name in FILES}
    assert named["bert_layers"] == "modern_encoder, not bert"
    assert named["roberta_masking"] == "a base that has learned (encoder), not roberta"
    assert named["bert_sizes"] == "bert with rotary, pairs, PreNorm"
    assert not named["reformer_hashes"]
    assert not named["small_encoder"]


SMALL = """
pretrain: {recipe: bert, new_model: [size=tiny], overrides: [format.max_length=8]}
start: encoder
arms: {one: [size.num_layers=1], two: {overrides: [size.num_layers=2], finetune: [optim.lr=1]}}
baseline: one
budget: {steps: 3}
metrics: {loss: {of: pretrain, key: loss/mlm, expect: {two: lower}}}
published:
  corpus: books
  arms: {two: null, three: [size.num_layers=3]}
  pretrain: {overrides: [train.batch_size=7]}
"""


def test_a_block_changes_what_it_names(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(SMALL)
    form = take_published_form(load(file), file)
    assert form["arms"] == {"one": ["size.num_layers=1"], "three": ["size.num_layers=3"]}
    assert form["metrics"]["loss"]["expect"] == {}  # of an arm that is gone
    assert form["start"] is None
    assert form["budget"] == {"steps": 1_000_000}  # of the recipe's published line
    line = header(recipes_dir() / "bert.yaml").command("Published")
    assert form["pretrain"]["new_model"] == ["size=base", "tokenizer.vocab_size=30522"]
    assert form["pretrain"]["overrides"][-1] == "train.batch_size=7"
    assert "format.max_length=8" not in form["pretrain"]["overrides"]
    kept = {key_of(word) for word in line[3:]} - {"data.path", "train.steps"}
    both = [*form["pretrain"]["new_model"], *form["pretrain"]["overrides"]]
    assert kept == {key_of(word) for word in both}
    file.write_text(SMALL.replace("corpus: books", "line: false\n  budget: {tokens: 9}"))
    form = take_published_form(load(file), file)
    assert form["pretrain"]["overrides"] == ["train.batch_size=7"]
    assert form["budget"] == {"tokens": 9}


def test_a_list_of_the_command_line_says_what_it_leaves_out(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(SMALL)

    def said(*words: str) -> list[str]:
        return list(list_replaced(file, Provenance("ablate", overrides=words)))

    assert said("pretrain.overrides=[optim.lr=1e-3]") == [
        "pretrain.overrides: replaces the list in the file; no longer set: format.max_length=8"
    ]
    assert said("pretrain.overrides=[format.max_length=16,optim.lr=1]", "seeds=[1,2]") == []
    assert said("arms.two.overrides=[size.width=8]")[0].endswith("set: size.num_layers=2")
    published_now = said("scale=published", "pretrain.overrides=[size=tiny]")
    assert "train.batch_size=7" in published_now[0]
