"""Every activation of plmctl has a published name under which transformers computes the same, and a
model keeps its family and its heads whichever it has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from plmctl.artifacts.assemble import build_model, settle_lengths
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.core.errors import ConfigError
from plmctl.interop import bert, gpt2, hf
from plmctl.models.base import Model
from plmctl.nn.cells.feedforward import ACTIVATIONS
from plmctl.training.checkpoint import tensors_of

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

CLASSES = {  # our recipe -> the class that has all of its heads
    "bert": "BertForPreTraining",
    "roberta": "RobertaForMaskedLM",
    "albert": "AlbertForPreTraining",
    "electra": "ElectraForPreTraining",
    "gpt": "OpenAIGPTLMHeadModel",
    "gpt2": "GPT2LMHeadModel",
    "xlnet": "XLNetLMHeadModel",
}
LOGITS = {"nsp": "seq_relationship_logits", "sop": "sop_logits"}
VOCAB = 60


@pytest.mark.parametrize("published", [bert.ACTIVATIONS, gpt2.ACTIVATIONS], ids=["bert", "gpt2"])
def test_published_names_mean_the_same_function(published: dict[str, str]) -> None:
    from transformers.activations import ACT2FN

    assert set(published.values()) == set(ACTIVATIONS)
    x = torch.linspace(-4, 4, 81)
    for name, ours in published.items():
        assert_close(ACTIVATIONS[ours](x), ACT2FN[name](x), atol=1e-6, rtol=1e-5)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("recipe", "activation"),
    [
        *(("bert", activation) for activation in ACTIVATIONS),
        *((recipe, "relu") for recipe in CLASSES if recipe != "bert"),
        ("albert", "gelu"),
        ("gpt", "silu"),
    ],
)
def test_a_model_stays_in_its_family_with_all_heads(
    recipe: str, activation: str, tmp_path: Path
) -> None:
    model, config = random_model(recipe, activation)
    exported = hf.export(config, tensors_of(model), pad=0)
    assert (exported.architecture, exported.left_out) == (CLASSES[recipe], [])
    hf.write(tmp_path, exported, tokens={"pad": 0, "bos": 1, "eos": 2})
    kind = getattr(transformers, exported.architecture)
    published, info = kind.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    ids = torch.randint(3, VOCAB, (2, 20), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        theirs = published.eval()(ids)
        last = model(Batch(torch.arange(2), {"text": Seq(ids, torch.tensor([20, 20]))})).last
        ours = {name: logits(model, name, last) for name in model.heads if name != "pooler"}
    for name, found in ours.items():
        wanted = theirs[LOGITS.get(name, "prediction_logits" if len(ours) > 1 else "logits")]
        assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_the_head_of_bert_has_the_activation_of_its_cells() -> None:
    """As in BERT's code; another one would make logits that no class with all heads has."""
    model, config = random_model("bert", "silu", "heads.mlm.activation=gelu")
    with pytest.raises(
        ConfigError,
        match=r"(?s)nearest, bert, differs in\s+heads\.mlm\.activation=gelu \(published: silu\)"
        r".*fix: --to plmctl  # keeps this model, and --to onnx",
    ):
        hf.export(config, tensors_of(model), pad=0)


def test_gpt_has_no_name_for_the_exact_gelu() -> None:
    """Its `gelu` is the tanh form, and the model would compute something else."""
    model, config = random_model("gpt", "gelu")
    message = r"openai-gpt, differs in\s+.*activation=gelu \(published: gelu_tanh or relu or silu\)"
    with pytest.raises(ConfigError, match=message):
        hf.export(config, tensors_of(model), pad=0)


def test_no_published_class_takes_the_mean_of_a_row() -> None:
    model, config = random_model("bert", "gelu", "+model.classifier.pooling=mean")
    message = r"model\.classifier\.pooling=mean \(published: one token\)"
    with pytest.raises(ConfigError, match=message):
        hf.export(config, tensors_of(model), pad=0)


def test_how_a_bias_began_is_nothing_to_export() -> None:
    model, config = random_model("bert", "gelu", "heads.mlm.prior=true")
    assert hf.export(config, tensors_of(model), pad=0).architecture == "BertForPreTraining"


@pytest.mark.parametrize("layout", ["afaf", "af af"])
def test_a_layout_may_be_spelled_in_other_ways(layout: str) -> None:
    model, config = random_model("bert", "gelu", f"model.stack.layout='{layout}'")
    exported = hf.export(config, tensors_of(model), pad=0)
    assert (exported.architecture, exported.left_out) == ("BertForPreTraining", [])
    assert exported.settings["num_hidden_layers"] == 2


def test_a_cell_without_a_published_name_is_said() -> None:
    model, config = random_model("bert", "gelu", "model.stack.layout=saf*2")
    with pytest.raises(ConfigError) as error:
        hf.export(config, tensors_of(model), pad=0)
    assert "model.stack.layout=saf*2 (published: af*2)" in str(error.value)
    cell = "model.stack.cells.s=DepthwiseConvolution (it has no published name)"
    assert cell in str(error.value)
    assert "fix: --to plmctl  # " in str(error.value)
    assert "keeps this model, and --to onnx" in str(error.value)


def random_model(recipe: str, activation: str, *words: str) -> tuple[Model, dict[str, Any]]:
    """A tiny model of a recipe with random weights in every layer, and its config."""
    setting = f"model.stack.cells.f.activation={activation}"
    config = settle_lengths(compose("pretrain", recipe, ["size=tiny", setting, *words]))
    model = build_model(config, vocab_size=VOCAB, seed=0).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model, config


def logits(model: Model, head: str, last: Tensor) -> Tensor:
    """What a head says of each token, or of the rows."""
    features = model.heads["pooler"](last[:, 0]) if head in LOGITS else last
    return model.heads[head](features)  # type: ignore[no-any-return]
