"""Parts inside of others, chosen by a word; words that are no part, or that break a reference."""

from __future__ import annotations

import pytest

from plmctl.config.build import check
from plmctl.config.compose import compose
from plmctl.config.walks import select
from plmctl.core.errors import ConfigError, UsageError

RESIDUAL, EMBEDDED = "model.stack.residual", "model.embedding.norm"
NORM = f"{RESIDUAL}.norm"


@pytest.mark.parametrize(
    ("word", "target"),
    [
        (f"{NORM}=batch", "plmctl.nn.norm.batch_norm"),
        (f"{NORM}=layer_norm", "plmctl.nn.norm.layer_norm"),
        (f"{NORM}=plmctl.nn.norm.rms_norm", "plmctl.nn.norm.rms_norm"),
        (f"{EMBEDDED}=rms_norm", "plmctl.nn.norm.rms_norm"),
        (f"{RESIDUAL}=prenorm", "plmctl.nn.residual.PreNorm"),
        ("model.stack.cells.a=local_attention", "plmctl.nn.cells.local_attention.LocalAttention"),
    ],
)
def test_a_word_names_the_part_and_the_settings_that_it_takes_stay(word: str, target: str) -> None:
    key, usual = word.partition("=")[0], compose("pretrain", "bert")
    spec = compose("pretrain", "bert", [word])
    node, before = select(spec, key), select(usual, key)
    assert node["_target_"] == target
    assert {name: node[name] for name in node if name != "_target_"}.items() <= before.items()
    assert select(spec, f"{NORM}.eps") == 1e-12  # what refers to the part still finds its number


def test_the_part_takes_its_own_settings_and_leaves_out_others() -> None:
    words = [f"{NORM}.momentum=0.2", f"{NORM}=batch_norm", f"{EMBEDDED}.bias=false"]
    norm = select(compose("pretrain", "bert", words), NORM)
    assert (norm["momentum"], norm["eps"]) == (0.2, 1e-12)
    spec = compose("pretrain", "modernbert", [f"{RESIDUAL}=PostNorm"])
    assert "first_norm" not in spec.model.stack.residual
    assert any("first_norm" in removed for removed in spec.provenance.removed)


@pytest.mark.parametrize(
    ("word", "path", "allowed", "fix"),
    [
        (f"{NORM}=batch9", NORM, "did you mean 'batch_norm'", f"{NORM}=batch_norm"),
        (f"{RESIDUAL}=5", RESIDUAL, "there are NoResidual", f"{RESIDUAL}=PostNorm"),
        (f"{NORM}=null", NORM, "must be given", f"{NORM}=..."),
        ("norm=batch", "norm", "no such setting", f"{EMBEDDED}=batch {NORM}=batch"),
        (f"{EMBEDDED}=null", EMBEDDED, f"{NORM}.eps reads {EMBEDDED}.eps", f"{NORM}.eps="),
        ("size=null", "size", "keep its settings", "leave out size"),
        (
            f"{EMBEDDED}._target_=torch.nn.BatchNorm1d",
            f"{EMBEDDED}._target_",
            '@part_of("norm"), of plmctl.core.parts, above def make(*, eps, **more)',
            f"--plugin own_parts {EMBEDDED}._target_=own_parts.make",
        ),
    ],
)
def test_what_is_no_part_is_refused_where_it_stands(
    word: str, path: str, allowed: str, fix: str
) -> None:
    with pytest.raises(UsageError) as caught:
        compose("pretrain", "bert", [word])
    error = caught.value
    assert isinstance(error, ConfigError)
    assert error.path == path
    assert allowed in error.allowed
    assert fix in error.fix


@pytest.mark.parametrize("value", ["rms_norm", 5, None, ["rms_norm"]])
def test_a_value_in_a_file_is_no_factory_of_parts(value: object) -> None:
    """A recipe of one's own may state what no command line does."""
    node = {"_target_": "plmctl.nn.residual.PostNorm", "norm": value, "dropout": 0.1}
    (error,) = check(node, None, path=RESIDUAL)
    assert isinstance(error, ConfigError)
    assert error.path == NORM
