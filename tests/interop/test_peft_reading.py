"""Adapters that the library `peft` has saved, read beside their base: its own logits."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import plmctl
from plmctl.artifacts.convert import convert
from plmctl.artifacts.loading import Loaded
from plmctl.core.batch import Seq
from plmctl.core.errors import DataError
from tests.interop.publishing import publish
from tests.interop.test_families import batch, inputs
from tests.late import Late

peft = Late("peft")
pytestmark = pytest.mark.parity

IA3 = {"target_modules": ["key", "value", "output.dense"], "feedforward_modules": ["output.dense"]}
LORA = {"r": 3, "lora_alpha": 6, "lora_dropout": 0.1}
CASES: dict[str, tuple[str, str, Any]] = {
    "rows": (
        "BertForSequenceClassification",
        "SEQ_CLS",
        lambda: peft.LoraConfig(
            **LORA, target_modules=["query", "intermediate.dense"], use_rslora=True, bias="all"
        ),
    ),
    "layer": (
        "RobertaForTokenClassification",
        "TOKEN_CLS",
        lambda: peft.LoraConfig(
            **LORA, target_modules=["value", "attention.output.dense"], layers_to_transform=[1]
        ),
    ),
    "fused": ("GPT2LMHeadModel", "CAUSAL_LM", lambda: peft.LoraConfig(**LORA)),
    "dora": (
        "GPT2LMHeadModel",
        "CAUSAL_LM",
        lambda: peft.LoraConfig(**LORA, use_dora=True, layers_to_transform=[1]),
    ),
    "vera": (
        "BertForTokenClassification",
        "TOKEN_CLS",
        lambda: peft.VeraConfig(
            r=7, target_modules=["query", "intermediate.dense"], projection_prng_key=3
        ),
    ),
    "adalora": (
        "GPT2LMHeadModel",
        "CAUSAL_LM",
        lambda: peft.AdaLoraConfig(init_r=4, target_r=2, total_step=9, tinit=2, tfinal=3),
    ),
    "t5": ("T5ForConditionalGeneration", "SEQ_2_SEQ_LM", lambda: peft.LoraConfig(**LORA)),
    "ia3": ("BertForTokenClassification", "TOKEN_CLS", lambda: peft.IA3Config(**IA3)),
    "prompt": (
        "GPT2LMHeadModel",
        "CAUSAL_LM",
        lambda: peft.PromptTuningConfig(num_virtual_tokens=3),
    ),
    "prefix": (
        "GPT2LMHeadModel",
        "CAUSAL_LM",
        lambda: peft.PrefixTuningConfig(num_virtual_tokens=3),
    ),
    "network": (
        "GPT2LMHeadModel",
        "CAUSAL_LM",
        lambda: peft.PrefixTuningConfig(
            num_virtual_tokens=3, prefix_projection=True, encoder_hidden_size=7
        ),
    ),
    "source": (
        "BartForConditionalGeneration",
        "SEQ_2_SEQ_LM",
        lambda: peft.PromptTuningConfig(num_virtual_tokens=3, num_transformer_submodules=1),
    ),
}


def tune(place: Path, name: str) -> tuple[Any, Path]:
    """A model of peft with random weights in all that it trains, and its folder."""
    kind, task, configure = CASES[name]
    base, _ = publish(place / "base", kind)
    base.config._name_or_path = base.name_or_path = str(place / "base")
    config = configure()
    config.task_type = task
    theirs = peft.get_peft_model(base, config).eval()
    generator = torch.Generator().manual_seed(3)
    for weight in theirs.parameters():
        if weight.requires_grad:
            weight.data += 0.3 * torch.randn(weight.shape, generator=generator)
    if name == "adalora":
        allocator = theirs.base_model.rankallocator
        for weight in theirs.parameters():
            weight.grad = weight.data.clone()
        allocator.update_ipt(theirs.base_model.model)
        config.rank_pattern = allocator.mask_to_budget(theirs.base_model.model, 3)
    theirs.save_pretrained(place / "adapter")
    return theirs, place / "adapter"


@torch.no_grad()
def read_both(theirs: Any, loaded: Loaded) -> tuple[Tensor, Tensor]:
    """Logits of theirs and of ours, of real tokens."""
    ids, mask = inputs([7, 4])
    given, words = batch(ids, mask), {"input_ids": ids, "attention_mask": mask.long()}
    if "encoder" in loaded.config["model"]:
        previous = ids[:, :4]
        target = Seq(previous, torch.tensor([4, 4]), {"previous": previous}, full=True)
        given = replace(given, seqs={"source": given.text, "target": target})
        words["decoder_input_ids"], mask = previous, torch.ones_like(previous).bool()
    found, wanted = loaded.model(given).last, theirs(**words).logits
    heads = loaded.model.heads
    if "class" in heads:
        return wanted, heads["class"](heads["pooler"](found[:, 0]))
    (head,) = (part for name, part in heads.items() if name != "pooler")
    return wanted[:, -mask.shape[1] :][mask], head(found)[mask]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_what_peft_saved_gives_its_logits(name: str, tmp_path: Path) -> None:
    theirs, folder = tune(tmp_path, name)
    with theirs.disable_adapter():
        plain, _ = read_both(theirs, plmctl.load(tmp_path / "base"))
    loaded = plmctl.load(folder)
    wanted, found = read_both(theirs, loaded)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert (plain - wanted).abs().max() > 1e-2
    if name in ("rows", "fused", "ia3", "dora", "vera", "adalora"):
        convert(folder, tmp_path / "ours", to="plmctl")
        folded = plmctl.load(tmp_path / "ours")
        assert folded.config.get("peft") is None
        torch.testing.assert_close(read_both(theirs, folded)[1], wanted, rtol=1e-5, atol=1e-5)


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    _, folder = tune(tmp_path, "rows")
    _, other = publish(tmp_path / "other", "BertForSequenceClassification", hidden_size=32)
    settings = json.loads((folder / "adapter_config.json").read_text())

    def read(**changes: Any) -> None:
        (folder / "adapter_config.json").write_text(json.dumps(settings | changes))
        plmctl.load(folder)

    with pytest.raises(DataError, match=rf"in {other}: the adapter belongs to another model"):
        read(base_model_name_or_path=str(other))
    with pytest.raises(DataError, match="its base is not here: google/bert") as said:
        read(base_model_name_or_path="google/bert")
    assert "hf download google/bert" in str(said.value)
    with pytest.raises(DataError, match=r"peft_type LOHA .*did you mean 'LORA'"):
        read(peft_type="LOHA")
    with pytest.raises(DataError, match=r"alpha_pattern=\{'query': 2\} is a variant"):
        read(alpha_pattern={"query": 2})
    base, _ = publish(tmp_path / "base", "BertForSequenceClassification")
    base.config._name_or_path = base.name_or_path = str(tmp_path / "base")
    config = peft.LoraConfig(**LORA, target_modules=["pooler.dense"], task_type="SEQ_CLS")
    peft.get_peft_model(base, config).save_pretrained(tmp_path / "pooler")
    with pytest.raises(DataError, match=r"bert\.pooler\.dense .* no linear map"):
        plmctl.load(tmp_path / "pooler")
