"""The shipped studies beside the tables they are of: what their arms vary, and what they share
with the recipes.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from plmctl.artifacts.assemble import build_model
from plmctl.artifacts.cost import Cost, cost
from plmctl.attention.patterns.base import make_row
from plmctl.config.build import build
from plmctl.config.compose import compose
from plmctl.config.headers import header
from plmctl.config.recipes import recipes_dir
from plmctl.config.spec import Provenance
from plmctl.core.errors import UsageError
from plmctl.study.parse import parse
from plmctl.study.plan import plan
from plmctl.study.study import Study

ALBERT_NONE = "objective.sop.weight=0"


@pytest.fixture(autouse=True)
def bases_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plmctl.study.parse.find_state", lambda folder: "finished")


@cache
def study(name: str, *words: str) -> Study:
    """Parsed alone; tests/commands/test_ablate_command.py plans every one of them."""
    file = str(recipes_dir() / "studies" / f"{name}.yaml")
    return parse(compose("ablate", file, list(words)))


def test_the_transformers_variations_train_as_its_recipe_does() -> None:
    variations = study("transformer")
    tuned = compose(
        "finetune", None, ["task=seq2seq", "task.path=x", "checkpoint=null", *variations.finetune]
    )
    recipe = compose("pretrain", "transformer", ["data.path=a.txt", "data.target_path=b.txt"])
    # its model, whatever is not an override
    assert {arm.recipe for arm in variations.arms.values()} == {"transformer"}
    assert not [word for word in variations.pretrain if word.startswith(("model", "position"))]
    for key in (
        "optim.betas",
        "optim.eps",
        "optim.weight_decay",
        "train.clip",
        "schedule._target_",
    ):
        assert tuned.select(key) == recipe.select(key), key
    assert tuned.task.smoothing == recipe.objective.seq2seq.smoothing
    for template in ("source_template", "target_template"):
        assert tuned.task[template] == recipe.format[template]


def test_berts_sizes_are_the_six_of_its_table() -> None:
    sizes = study("bert_sizes")
    assert "size=mini" in sizes.pretrain
    shapes = {}
    for name, arm in sizes.arms.items():
        size = compose("pretrain", "bert", [*sizes.pretrain, *arm.overrides, "data.path=x"]).size
        shapes[name] = (size.num_layers, size.width, size.num_heads, size.inner_width)
    assert shapes == {  # 64 columns a head, four times the width inside, as published
        "3 layers": (3, 256, 4, 1024),
        "6 layers with 1 head": (6, 256, 1, 1024),
        "6 layers": (6, 256, 4, 1024),
        "12 layers": (12, 256, 4, 1024),
        "12 wide layers": (12, 320, 5, 1280),
        "24 wide layers": (24, 320, 5, 1280),
    }
    published = sizes.metrics["masked perplexity"].published
    assert list(published.values.values()) == [5.84, 5.24, 4.68, 3.99, 3.54, 3.23]


# the published table has a figure for every arm
@pytest.mark.parametrize(
    ("name", "metrics"),
    [
        ("bert_sizes", ["MNLI", "MRPC", "SST-2", "masked perplexity"]),
        ("bert_tasks", ["MNLI", "MRPC", "QNLI", "SQuAD", "SST-2"]),
        ("bert_layers", ["names"]),
        ("gpt_auxiliary", ["CoLA", "MNLI", "MRPC", "QNLI", "QQP", "RTE", "SST-2", "STS-B"]),
        ("transformer", ["translation"]),
    ],
)
def test_whole_tables(name: str, metrics: list[str]) -> None:
    node = OmegaConf.load(recipes_dir() / "studies" / f"{name}.yaml")
    found = {key: each for key, each in node.metrics.items() if "published" in each}
    assert sorted(str(key) for key in found) == metrics
    for each in found.values():
        assert set(each.published["values"]) == set(node.arms)


@pytest.mark.parametrize(
    ("name", "whole", "others"),
    [
        ("distilbert_losses", "all", {"teacher", "random weights"}),
        ("tinybert_losses", "all", {"teacher", "no predictions", "no layers"}),
        ("minilm_relations", "three relations", {"teacher", "labels", "attention and values"}),
    ],
)
def test_one_loss_is_taken_away_at_a_time(name: str, whole: str, others: set[str]) -> None:
    arms = study(name).arms
    for arm in set(arms) - others - {whole}:
        assert len(set(arms[arm].finetune) - set(arms[whole].finetune)) == 1, arm
        assert arms[arm].teacher == arms[whole].teacher == "teacher"
        assert arms[arm].overrides == arms[whole].overrides


def test_generators_share_what_is_published() -> None:
    tying = study("electra_tying", "finetune.tasks.sst2.path=x")
    published = tying.metrics["SST-2"].published
    assert published.values == {"none": 83.6, "tokens": 84.3, "weights": 84.4}
    assert list(tying.arms) == ["none", "tokens", "embeddings", "weights"]
    steps = study("electra_training")
    (half,) = [word for word in steps.arms["two_stages"].overrides if "updates=" in word]
    assert steps.budget == ("steps", 2 * int(half.partition("=")[2]))


def test_alberts_pairs_have_the_three_rows_of_the_table() -> None:
    pairs = study("albert_pairs")
    assert {arm.recipe for arm in pairs.arms.values()} == {"albert"}
    assert pairs.arms["none"].overrides == (ALBERT_NONE,)
    assert pairs.arms["next"].overrides[0] == "format=sentence_pair"
    assert pairs.arms["order"].overrides == ()
    asked = [metric.published.values for metric in pairs.metrics.values() if metric.published]
    assert [values["none"] for values in asked] == [54.9, 52.4, 53.3]


def test_structbert_has_an_arm_of_bert_and_the_papers_figures() -> None:
    arms = study("structbert").arms
    assert arms["bert"].overrides[2:] == ("objective=[mlm,nsp]", "noise=[token_mask]")
    file = OmegaConf.load(recipes_dir() / "studies" / "structbert.yaml")
    for metric in ("CoLA", "SST-2", "MNLI", "QQP", "SQuAD"):
        assert set(file.metrics[metric].published["values"]) == set(arms)


def test_names_are_tagged_with_the_documents_context() -> None:
    names = study("bert_layers", "finetune.tasks.names.path=x").tasks["names"]
    assert names.overrides == ("task.context=document",)


def test_short_text_is_learnt_from_first_weights_too() -> None:
    arms = study("encoders_short").arms
    without = [name for name, arm in arms.items() if not arm.pretrain]
    assert without == ["attention", "lstm", "gru", "cnn"]
    for name in without:
        assert arms[f"pretrained {name}"].pretrain
        assert arms[f"pretrained {name}"].overrides == arms[name].overrides


def test_gradients_are_compared_by_depth() -> None:
    gradients = study("prenorm_gradients")
    assert {name: arm.overrides[0] for name, arm in gradients.arms.items()} == {
        f"{kind} {depth}": f"size.num_layers={depth}"
        for kind in ("post-LN", "pre-LN")
        for depth in (6, 8, 10, 12, 14)
    }  # figure 3, a and b
    assert gradients.metrics["last layer"].key == "start/grad_norm/last"


def test_chinese_units_are_not_planned_on_english(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"zhwiki\.txt: no such file, folder or pattern"):
        plan(study("chinese_units"), Provenance("ablate"))


@pytest.mark.parametrize(
    "name", sorted(file.stem for file in (recipes_dir() / "studies").glob("*.yaml"))
)
def test_the_launch_line_of_a_study_is_one(name: str) -> None:
    """Every task that the line gives a path to is there, none is left out; the files themselves
    need not be.
    """
    words = header(recipes_dir() / "studies" / f"{name}.yaml").command()
    assert words[:3] == ["plmctl", "ablate", name]
    told = {word.split(".")[2] for word in words[3:] if word.startswith("finetune.tasks.")}
    assert told <= set(study(name, *words[3:]).tasks)


def costs(name: str) -> dict[str, Cost]:
    """What a token costs in the model of each arm, for rows as long as those of the study."""
    by_arm = {}
    for arm, settings in study(name).arms.items():
        words = [*study(name).pretrain, *settings.overrides, "data.path=x"]
        cfg = compose("pretrain", settings.recipe, words)
        with torch.device("meta"):
            model = build_model(cfg, vocab_size=int(cfg.tokenizer.vocab_size))
        by_arm[arm] = cost(model, length=int(cfg.format.max_length), predicted={"clm": 1.0})
    return by_arm


def test_the_lite_transformer_has_the_multiply_adds_of_the_plain_one() -> None:
    macs = {
        arm: sum(found.macs_per_token.values()) for arm, found in costs("lite_transformer").items()
    }
    assert list(macs) == ["transformer", "both", "attention", "convolution"]
    for arm, number in macs.items():
        assert number == pytest.approx(macs["transformer"], rel=0.01), arm


def test_the_evolved_transformer_has_the_parameters_of_the_plain_one() -> None:
    parameters = {
        arm: found.total_parameters for arm, found in costs("evolved_transformer").items()
    }
    assert list(parameters) == ["transformer", "evolved", "inner norm", "no convolutions"]
    for arm, number in parameters.items():
        assert number == pytest.approx(parameters["transformer"], rel=0.01), arm


def test_longformers_windows_cost_about_the_same() -> None:
    by_arm = study("longformer_windows").arms
    pairs = {}
    for name, arm in by_arm.items():
        cfg = compose(
            "pretrain", arm.recipe, [*study("longformer_windows").pretrain, *arm.overrides]
        )
        pattern = build(cfg.pattern, path="pattern")
        seen = [
            pattern.at_layer(layer).dense(make_row(pattern, torch.zeros(256).long()))
            for layer in range(4)
        ]
        pairs[name] = sum(float(mask.float().mean()) for mask in seen if mask is not None)
    assert list(pairs) == ["growing", "one size", "shrinking", "two heads with gaps"]
    for name, number in pairs.items():
        assert number == pytest.approx(pairs["growing"], rel=0.1), name


def test_sandwiches_differ_in_nothing_but_their_order() -> None:
    by_arm = costs("sandwich").values()
    assert len({(one.total_parameters, one.flops_per_token) for one in by_arm}) == 1
    ks = [int(arm.overrides[0].partition("=")[2]) for arm in study("sandwich").arms.values()]
    assert ks == [0, 1, 2, 3, 5]
