"""Numbers in a published config.json that no model has, and those that are not the weights'."""

from __future__ import annotations

import json
import resource

import pytest

from plmctl.artifacts.loading import load, open_source
from plmctl.core.errors import DataError


def change(folder, **numbers) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | numbers))


@pytest.mark.parametrize(
    ("name", "key", "number", "said"),
    [
        (
            "BertForMaskedLM",
            "num_hidden_layers",
            10**9,
            "num_layers is 1000000000, and may be 2,500 at most",
        ),
        (
            "BertForMaskedLM",
            "hidden_size",
            10**12,
            "width is 1000000000000, and may be 65,536 at most",
        ),
        ("GPT2LMHeadModel", "n_layer", 10**9, "num_layers is 1000000000, and may be 2,500 at most"),
        (
            "BartForConditionalGeneration",
            "decoder_layers",
            10**9,
            "decoder_layers is 1000000000, and may be 2,500 at most",
        ),
        (
            "AlbertForMaskedLM",
            "num_hidden_layers",
            10**9,
            "num_layers is 1000000000, and may be 2,500 at most",
        ),
    ],
)
def test_numbers_that_no_model_has(name: str, key: str, number: int, said: str, published) -> None:
    _, folder = published(name)
    change(folder, **{key: number})
    with pytest.raises(DataError) as refused:
        load(folder)
    assert str(refused.value) == f"{folder / 'config.json'}: {said}\n  fix: # download it again"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"intermediate_size": 1 << 26},
            r'intermediate_size=67108864, and the weights have 24\n.*"intermediate_size": 24',
        ),
        ({"hidden_size": 1 << 14}, "config.json says hidden_size=16384, and the weights have 16\n"),
        (
            {"max_position_embeddings": 1 << 26},
            "config.json says max_position_embeddings=67108864, and the weights have 12\n",
        ),
        # the library refuses a table of other rows, too
        ({"vocab_size": 41}, "config.json says vocab_size=41, and the weights have 40\n"),
        ({"num_hidden_layers": 1}, "config.json says num_hidden_layers=1, and the weights have 2"),
        ({"num_hidden_layers": 2000}, r"without its tensors bert.encoder.layer.2\..* and \d+ more"),
    ],
)
def test_numbers_that_are_not_the_weights(changes: dict[str, int], said: str, published) -> None:
    """They are compared before there is room for such a model."""
    _, folder = published("BertForMaskedLM")
    change(folder, **changes)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError, match=said):
        open_source(folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10  # kB


@pytest.mark.parametrize(
    ("name", "key", "number", "said"),
    [
        ("BartForConditionalGeneration", "decoder_layers", 2, "decoder_layers=2, .* have 3"),
        ("RobertaForMaskedLM", "max_position_embeddings", 55, "embeddings=55, .* have 14"),
        # a setting of the same number is not blamed
        ("T5ForConditionalGeneration", "d_kv", 4, r"disagree: .*qkv.weight \[48, 16\] for \[24"),
    ],
)
def test_a_setting_is_named_by_its_published_name(
    name: str, key: str, number: int, said: str, published
) -> None:
    _, folder = published(name)
    change(folder, **{key: number})
    with pytest.raises(DataError, match=said):
        open_source(folder)
