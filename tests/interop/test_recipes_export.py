"""Every recipe's model, as conf/ composes it, becomes the published class of its family, with
the same logits.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from plmctl.artifacts.assemble import build_model, settle_lengths
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.interop import hf
from plmctl.training.checkpoint import tensors_of

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

RECIPES = {
    "bert": "BertForPreTraining",
    "roberta": "RobertaForMaskedLM",
    "albert": "AlbertForPreTraining",
}
RECIPES |= {"gpt": "OpenAIGPTLMHeadModel", "gpt2": "GPT2LMHeadModel", "xlnet": "XLNetLMHeadModel"}
RECIPES |= {"mpnet": "MPNetForMaskedLM", "fnet": "FNetForPreTraining"}
RECIPES |= {"funnel": "FunnelForMaskedLM", "xlm": "XLMWithLMHeadModel"}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_exports_to_its_family(recipe: str, tmp_path: Path) -> None:
    config = settle_lengths(compose("pretrain", recipe, ["size=tiny"]))
    model = build_model(config, vocab_size=60, seed=0).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    if recipe == "funnel":  # transformers loads zeros for the vector of padding
        model.backbone.token_embedding.weight.data[0] = 0
    pad = int(recipe == "mpnet")  # whose positions count it
    exported = hf.export(config, tensors_of(model), pad=pad)
    assert (exported.architecture, exported.left_out) == (RECIPES[recipe], [])
    hf.write(tmp_path, exported, tokens={"pad": pad, "bos": 1, "eos": 2})
    published, info = getattr(transformers, exported.architecture).from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    ids = torch.randint(3, 60, (2, 20), generator=generator)
    real = torch.arange(20) < torch.tensor([20, 13])[:, None]
    ids = ids * real + pad * ~real
    with torch.no_grad():
        given = {"langs": ids * 0} if recipe == "xlm" else {}
        out = published.eval()(ids, attention_mask=real.long(), **given)
        last = model(Batch(torch.arange(2), {"text": Seq(ids, real.sum(1))})).last
        found = model.heads["plm" if recipe == "xlnet" else "clm" if "gpt" in recipe else "mlm"](
            last
        )
    wanted = out.prediction_logits if RECIPES[recipe].endswith("PreTraining") else out.logits
    assert_close(found[real], wanted[real], atol=1e-5, rtol=1e-5)
    back = hf.read(tmp_path)
    assert back.tensors.keys() == tensors_of(model).keys()
    assert all(tensor.equal(back.tensors[name]) for name, tensor in tensors_of(model).items())
