"""LoRA and IA3 against the library `peft`: the losses of ten updates from one start."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import plmctl
from plmctl.artifacts.adapter_layout import to_peft
from plmctl.artifacts.assemble import build_model
from plmctl.core.batch import Seq
from plmctl.core.errors import UsageError
from plmctl.models.base import Model
from plmctl.nn.peft.adalora import AdaptiveRank
from plmctl.nn.peft.base import Method, fold
from plmctl.nn.peft.dora import WeightDecomposed
from plmctl.nn.peft.ia3 import LearnedScales
from plmctl.nn.peft.lora import LowRank
from plmctl.nn.peft.prefix import PrefixTuning
from plmctl.nn.peft.prompt import PromptTuning
from plmctl.nn.peft.vera import SharedRandom
from plmctl.nn.restrained import find_restrained
from plmctl.storage.settings_file import to_yaml
from plmctl.training.checkpoint import (
    Base,
    Snapshot,
    fingerprint_tensors,
    load_tensors,
    tensors_of,
    write,
)
from plmctl.training.freezing import apply_freezing
from plmctl.training.progress import Progress
from tests.interop.publishing import publish
from tests.interop.test_families import batch, inputs
from tests.late import Late

peft = Late("peft")
pytestmark = pytest.mark.parity

LAYER = "base_model.model.bert.encoder.layer"
FEED_FORWARD = r".*layer\.\d+\.output\.dense"


# our cell and name of rows, the published module
MAPS = (
    ("qkv", "query", "attention.self.query"),
    ("qkv", "value", "attention.self.value"),
    ("up", "up", "intermediate.dense"),
)
TARGETS = ["query", "value", "intermediate.dense"]
PRODUCT = {"maps": ["query", "value", "up"], "rank": 3, "alpha": 6.0}


def lora(root: bool = False, kind: type[Method] = LowRank) -> tuple[Method, Any, dict[str, str]]:
    """Ours, theirs, and {a part of our names: a part of theirs}."""
    ours = kind(**PRODUCT, root=root)
    dora = kind is WeightDecomposed
    theirs = peft.LoraConfig(
        r=3, lora_alpha=6, target_modules=TARGETS, use_rslora=root, use_dora=dora
    )
    ends = {"down": "lora_A.default.weight", "up": "lora_B.default.weight"}
    ends |= {"magnitude": "lora_magnitude_vector.default.weight"} if dora else {}
    return ours, theirs, name_all(ours.mark, ends)


def vera() -> tuple[Method, Any, dict[str, str]]:
    ours = SharedRandom(maps=PRODUCT["maps"], rank=9, seed=5)
    theirs = peft.VeraConfig(r=9, target_modules=TARGETS, projection_prng_key=5)
    ends = {"inner": "vera_lambda_d.default", "outer": "vera_lambda_b.default"}
    return ours, theirs, name_all("vera", ends)


BUDGET = {"final_rank": 2, "begin_at": 0.2, "end_at": 0.8, "every": 2}


def adalora() -> tuple[Method, Any, dict[str, str]]:
    ours = AdaptiveRank(**PRODUCT, **BUDGET)
    theirs = peft.AdaLoraConfig(
        **{"init_r": 3, "target_r": 2, "lora_alpha": 6, "target_modules": TARGETS},
        **{"tinit": 2, "tfinal": 2, "deltaT": 2, "total_step": 10},
    )
    ends = {
        own: f"lora_{end}.default" for own, end in (("down", "A"), ("values", "E"), ("up", "B"))
    }
    return ours, theirs, name_all("adalora", ends)


def name_all(mark: str, ends: dict[str, str]) -> dict[str, str]:
    """The names of all tensors, by the ends of their names."""
    return {
        f"{cell}.{mark}.{own}.{name}": f"{module}.{end}"
        for cell, name, module in MAPS
        for own, end in ends.items()
    }


def ia3() -> tuple[Method, Any, dict[str, str]]:
    ours = LearnedScales(maps=["key", "value"], inputs=["down"])
    targets = rf".*attention\.self\.(key|value)|{FEED_FORWARD}"
    theirs = peft.IA3Config(target_modules=targets, feedforward_modules=FEED_FORWARD)
    names = {
        "qkv.ia3.factors.key": "attention.self.key.ia3_l.default",
        "qkv.ia3.factors.value": "attention.self.value.ia3_l.default",
        "down.ia3.factors.down": "output.dense.ia3_l.default",
    }
    return ours, theirs, names


NODES = {
    "lora": {
        "_target_": "plmctl.nn.peft.lora.LowRank",
        "maps": ["query", "value", "up"],
        "rank": 3,
        "alpha": 6,
    },
    "ia3": {
        "_target_": "plmctl.nn.peft.ia3.LearnedScales",
        "maps": ["key", "value"],
        "inputs": ["down"],
    },
    "dora": {"_target_": "plmctl.nn.peft.dora.WeightDecomposed", **PRODUCT},
    "vera": {"_target_": "plmctl.nn.peft.vera.SharedRandom", "maps": PRODUCT["maps"], "rank": 9},
    "adalora": {"_target_": "plmctl.nn.peft.adalora.AdaptiveRank", **{**PRODUCT, **BUDGET}},
}
METHODS = {
    "lora": lora,
    "rslora": lambda: lora(root=True),
    "dora": lambda: lora(kind=WeightDecomposed),
    "vera": vera,
    "ia3": ia3,
}


def losses(model: nn.Module, read: Callable[[], Tensor], labels: Tensor) -> list[float]:
    """Of ten updates by AdamW."""
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=3e-2)
    found = []
    for _ in range(10):
        loss = F.cross_entropy(read().flatten(0, 1), labels.flatten())
        found.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", METHODS)
def test_ten_updates_have_the_losses_of_peft(name: str, tmp_path: Path) -> None:
    method, config, names = METHODS[name]()
    model, theirs = start_alike(method, config, names, tmp_path)
    ids, mask = inputs([9, 9])
    given = batch(ids, mask)

    def read() -> Tensor:
        return model.heads["mlm"](model(given).last)  # type: ignore[no-any-return]

    labels = ids.flip(1)
    wanted = losses(theirs, lambda: theirs(ids, attention_mask=mask.long()).logits, labels)
    found = losses(model, read, labels)
    assert found == pytest.approx(wanted, rel=1e-8)
    assert found[-1] < 0.97 * found[0]
    before = read().detach()
    fold(model.backbone, [method])
    torch.testing.assert_close(read(), before, rtol=1e-9, atol=1e-9)
    merged = theirs.merge_and_unload()(ids, attention_mask=mask.long()).logits
    torch.testing.assert_close(read(), merged, rtol=1e-7, atol=1e-7)


def test_ten_updates_of_adalora_have_the_losses_of_peft(tmp_path: Path) -> None:
    """Its allocator measures after an update; here, before, as the paper does."""
    model, theirs = start_alike(*adalora(), tmp_path)
    (budget,) = find_restrained(model)
    budget.memory.double()
    inner, allocator = theirs.base_model.model, theirs.base_model.rankallocator
    ids, mask = inputs([9, 9])
    labels, given, found, wanted, ranks = ids.flip(1), batch(ids, mask), [], [], []
    ours, its = (
        torch.optim.AdamW([w for w in part.parameters() if w.requires_grad], lr=3e-2)
        for part in (model, theirs)
    )
    for step in range(1, 11):
        logits = model.heads["mlm"](model(given).last)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten()) + budget.penalty()
        other = theirs.base_model(ids, attention_mask=mask.long(), labels=labels).loss
        for value, optimizer in ((loss, ours), (other, its)):
            optimizer.zero_grad()
            value.backward()
        budget.before_step(step / 10)
        allocator.update_ipt(inner)
        ours.step()
        its.step()
        budget.after_step(step)
        kept, chosen = allocator.budget_schedule(step)
        if step > 8:
            allocator.mask_using_rank_pattern(inner, pattern)  # noqa: F821
        elif chosen or step == 8:
            pattern = allocator.mask_to_budget(inner, kept)  # noqa: F841
        found.append(loss.item())
        wanted.append(other.item())
        ranks.append(sum(int((v != 0).sum()) for v in budget.list_values()))
    assert found == pytest.approx(wanted, rel=1e-8)
    assert ranks == [18, 18, 18, 13, 18, 12, 18, 12, 12, 12]


def start_alike(
    method: Method, config: Any, names: dict[str, str], place: Path
) -> tuple[Model, Any]:
    """A model of ours and one of theirs with the same drawn weights, in float64."""
    base, folder = publish(place, "BertForMaskedLM")
    model = plmctl.load(folder).model.double()
    method.add_to(model.backbone)
    model.double()
    apply_freezing(model, trainable=[f"backbone.{part}" for part in method.trains(model.backbone)])
    theirs = peft.get_peft_model(base.double().eval(), config).double()
    own = dict(model.named_parameters())
    known = dict(theirs.named_parameters())
    generator = torch.Generator().manual_seed(3)
    copied = 0
    for part, other in names.items():
        letter = "a" if part.startswith("qkv") else "f"
        for layer in range(2):
            mine = own[f"backbone.stack.blocks.{letter}.{layer}.cell.{part}"]
            its = known[f"{LAYER}.{layer}.{other}"]
            value = torch.randn(mine.shape, generator=generator, dtype=torch.float64)
            start = 1 + 0.1 * value if method.mark == "ia3" else 0.1 * value
            mine.data.copy_(start)
            its.data.copy_(start.reshape(its.shape))
            copied += mine.numel()
    for part, weight in known.items():
        if ".ranknum." in part:  # a number that the library should not train
            weight.requires_grad_(False)
    trained = [weight for weight in theirs.parameters() if weight.requires_grad]
    assert sum(weight.numel() for weight in trained) == copied
    return model, theirs


def test_ten_updates_of_a_prompt_have_the_losses_of_peft(tmp_path: Path) -> None:
    base, folder = publish(tmp_path, "BertModel")
    model = plmctl.load(folder).model
    method = PromptTuning(length=3)
    method.add_to(model.backbone)
    model.double()
    apply_freezing(model, trainable=[f"backbone.{part}" for part in method.trains(model.backbone)])
    config = peft.PromptTuningConfig(task_type="FEATURE_EXTRACTION", num_virtual_tokens=3)
    theirs = peft.get_peft_model(base.double().eval(), config).double()
    start = torch.randn(3, 16, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    theirs.prompt_encoder["default"].embedding.weight.data.copy_(start)
    model.backbone.prompt.vectors.data.copy_(start)  # type: ignore[union-attr, operator]
    ids, mask = inputs([9, 6])
    given = batch(ids, mask)

    def read() -> Any:
        return theirs(input_ids=ids, attention_mask=mask.long()).last_hidden_state[:, 3:]

    labels = (ids.flip(1) % 16).masked_fill(~mask, -100)
    wanted = losses(theirs, read, labels)
    found = losses(model, lambda: model(given).last, labels)
    assert found == pytest.approx(wanted, rel=1e-8)
    assert found[-1] < 0.99 * found[0]


@pytest.mark.parametrize("inner", [None, 5])
def test_ten_updates_of_a_prefix_have_the_losses_of_peft(inner: int | None, tmp_path: Path) -> None:
    base, folder = publish(tmp_path, "GPT2LMHeadModel")
    model = plmctl.load(folder).model
    method = PrefixTuning(length=3, inner_width=inner, shift=True)
    method.add_to(model.backbone)
    model.double()
    names = method.trains(model.backbone)
    apply_freezing(model, trainable=[f"backbone.{part}" for part in names])
    config = peft.PrefixTuningConfig(
        task_type="CAUSAL_LM",
        num_virtual_tokens=3,
        prefix_projection=inner is not None,
        encoder_hidden_size=inner,
    )
    theirs = peft.get_peft_model(base.double().eval(), config).double()
    generator = torch.Generator().manual_seed(4)
    own: Any = model.backbone
    encoder = theirs.prompt_encoder["default"]
    for weight in encoder.parameters():
        weight.data.copy_(0.3 * torch.randn(weight.shape, generator=generator).double())
    if inner is None:  # [P, layers, 2 W]
        parts = encoder.embedding.weight.data.chunk(2, 1)
        for block, part in zip(own.stack.blocks["a"], parts, strict=True):
            block.cell.prefix.vectors.data.copy_(part)
    else:
        mine = own.prefix
        pairs = (mine.vectors, mine.first, mine.first_bias, mine.second, mine.second_bias)
        for weight, other in zip(pairs, encoder.parameters(), strict=True):
            weight.data.copy_(other.data)
    ids, mask = inputs([9, 6])
    given = batch(ids, mask)

    def read() -> Any:
        return theirs(input_ids=ids, attention_mask=mask.long()).logits

    labels = ids.flip(1).masked_fill(~mask, -100)
    wanted = losses(theirs, read, labels)
    (head,) = model.heads.values()
    found = losses(model, lambda: head(model(given).last), labels)
    assert found == pytest.approx(wanted, rel=1e-8)
    assert found[-1] < 0.99 * found[0]


@pytest.mark.parametrize("name", ["T5ForConditionalGeneration", "BartForConditionalGeneration"])
def test_the_prompt_of_an_encoder_decoder_is_that_of_peft(name: str, tmp_path: Path) -> None:
    base, folder = publish(tmp_path, name)
    loaded = plmctl.load(folder)
    PromptTuning(length=3).add_to(loaded.model.backbone)
    config = peft.PromptTuningConfig(
        task_type="SEQ_2_SEQ_LM", num_virtual_tokens=3, num_transformer_submodules=1
    )
    theirs = peft.get_peft_model(base, config).eval()
    start = torch.randn(3, 16, generator=torch.Generator().manual_seed(4))
    theirs.prompt_encoder["default"].embedding.weight.data.copy_(start)
    own: Any = loaded.model.backbone
    own.encoder.prompt.vectors.data.copy_(start)
    ids, mask = inputs([9, 6])
    given = batch(ids, mask)
    previous = ids[:, :5]
    target = Seq(previous, torch.tensor([5, 5]), {"previous": previous}, full=True)
    given = replace(given, seqs={"source": given.text, "target": target})
    with torch.no_grad():
        hidden = loaded.model(given)
        (head,) = loaded.model.heads.values()
        found = head(hidden.last)
        wanted = theirs(
            input_ids=ids, attention_mask=mask.long(), decoder_input_ids=previous
        ).logits
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert hidden.streams["encoder"].shape[1] == ids.shape[1]


@pytest.mark.parametrize("name", NODES)
def test_a_run_is_loaded_by_peft_with_the_same_logits(name: str, tmp_path: Path) -> None:
    import transformers

    from plmctl.artifacts.convert import convert

    _, folder = publish(tmp_path / "base", "BertForSequenceClassification", num_labels=2)
    loaded = plmctl.load(folder)
    config = {**loaded.config, "peft": {name: NODES[name]}}
    model = build_model(config, vocab_size=loaded.source.vocab_size, seed=5)
    load_tensors(model, loaded.source.tensors)
    generator = torch.Generator().manual_seed(6)
    for part in [*model.trainable()]:
        weight = model.get_parameter(part).data
        weight.add_(0.1 * torch.randn(weight.shape, generator=generator))
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.yaml").write_text(to_yaml(config))
    trainer = {"progress": Progress().to_json()}
    write(Snapshot(tensors_of(model), {}, {}, {}, trainer), run)
    convert(run, tmp_path / "adapter", to="peft")
    base = transformers.AutoModelForSequenceClassification.from_pretrained(folder)
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    ids, mask = inputs([9, 4])
    model.eval()
    states = model(batch(ids, mask)).last
    found = model.heads["class"](model.heads["pooler"](states[:, 0]))
    wanted = theirs(ids, attention_mask=mask.long()).logits
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("names", [["a", "b"], ["c", "d"], ["a", "b", "c"]])
def test_an_adapter_has_the_labels_of_its_run(
    names: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the base's `config.json`, where both have the same labels; else with labels.json, and
    the words that the export prints.
    """
    import transformers

    from plmctl.artifacts.convert import convert

    stated = {"id2label": {0: "b", 1: "a"}, "label2id": {"b": 0, "a": 1}}
    _, folder = publish(tmp_path / "base", "RobertaForSequenceClassification", **stated)
    loaded = plmctl.load(folder)
    config = {**loaded.config, "peft": {"lora": NODES["lora"]}, "labels": names}
    config["heads"]["class"]["num_classes"] = len(names)
    model = build_model(config, vocab_size=loaded.source.vocab_size, seed=5).eval()
    own = {n: t for n, t in loaded.source.tensors.items() if not n.startswith("heads.")}
    load_tensors(model, own)
    run, adapter = tmp_path / "run", tmp_path / "adapter"
    run.mkdir()
    (run / "config.yaml").write_text(to_yaml(config))
    base = Base(path=str(folder), relative="", fingerprint=fingerprint_tensors({}), tensors=[])
    (run / "base.json").write_text(json.dumps(base))
    write(Snapshot(tensors_of(model), {}, {}, {}, {"progress": Progress().to_json()}), run)
    convert(run, adapter, to="peft")
    file = adapter / "labels.json"
    more = json.loads(file.read_text()) if file.is_file() else stated
    told = capsys.readouterr().err.partition("load it with ")[2].partition(f"{adapter}:")[0]
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder, **eval(f"dict({told})")
    )
    theirs = peft.PeftModel.from_pretrained(plain, adapter).eval()
    ids, mask = inputs([9, 4])
    given = batch(ids, mask)
    again = plmctl.load(adapter)
    found = model.heads["class"](model(given).last[:, 0])
    read = again.model.heads["class"](again.model(given).last[:, 0])
    wanted = theirs(ids, attention_mask=mask.long()).logits
    order = [names.index(name) for name in more["id2label"].values()]
    assert again.config["labels"] == list(more["id2label"].values())
    assert sorted(order) == [*range(len(names))]
    torch.testing.assert_close(read, wanted, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[:, order], wanted, rtol=1e-5, atol=1e-5)


VECTORS = {
    "prompt": ("GPT2LMHeadModel", {"_target_": "plmctl.nn.peft.prompt.PromptTuning"}),
    "prefix": ("GPT2LMHeadModel", {"_target_": "plmctl.nn.peft.prefix.PrefixTuning"}),
    "network": (
        "GPT2LMHeadModel",
        {"_target_": "plmctl.nn.peft.prefix.PrefixTuning", "inner_width": 5},
    ),
    "scaled": ("T5ForConditionalGeneration", {"_target_": "plmctl.nn.peft.prompt.PromptTuning"}),
}


def write_vectors(place: Path, name: str, **more: Any) -> tuple[Any, Any, Path, Any]:
    """The published base, ours with random vectors, and the folder of its checkpoint."""
    kind, node = VECTORS[name]
    base, folder = publish(place / "base", kind)
    loaded = plmctl.load(folder)
    config = {**loaded.config, "peft": {name: {**node, "length": 3, **more}}}
    model = build_model(config, vocab_size=loaded.source.vocab_size, seed=5)
    load_tensors(model, loaded.source.tensors)
    generator = torch.Generator().manual_seed(6)
    for part in model.trainable():
        weight = model.get_parameter(part).data
        weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    run = place / "run"
    run.mkdir()
    (run / "config.yaml").write_text(to_yaml(config))
    trainer = {"progress": Progress().to_json()}
    write(Snapshot(tensors_of(model), {}, {}, {}, trainer), run)
    return base, model.eval(), run, loaded


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", VECTORS)
def test_vectors_are_loaded_by_peft_with_the_same_logits(name: str, tmp_path: Path) -> None:
    from plmctl.artifacts.convert import convert

    shifted = {"shift": True} if "Prefix" in VECTORS[name][1]["_target_"] else {}
    base, model, run, plain = write_vectors(tmp_path, name, **shifted)
    convert(run, tmp_path / "adapter", to="peft")
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    ids, mask = inputs([7, 4])
    given, words = batch(ids, mask), {"input_ids": ids, "attention_mask": mask.long()}
    if name == "scaled":
        previous = ids[:, :4]
        target = Seq(previous, torch.tensor([4, 4]), {"previous": previous}, full=True)
        given = replace(given, seqs={"source": given.text, "target": target})
        words["decoder_input_ids"], mask = previous, torch.ones_like(previous).bool()
    (head,) = (part for part in model.heads)
    with torch.no_grad():
        found, without = (m.heads[head](m(given).last)[mask] for m in (model, plain.model))
        wanted = theirs(**words).logits[:, -mask.shape[1] :][mask]
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert (without - wanted).abs().max() > 1e-2


def test_vectors_that_peft_reads_otherwise_are_refused(tmp_path: Path) -> None:
    _, model, _, loaded = write_vectors(tmp_path, "prefix")
    config = {**loaded.config, "peft": {"prefix": {**VECTORS["prefix"][1], "length": 3}}}
    source = replace(loaded.source, config=config, tensors=tensors_of(model))
    with pytest.raises(UsageError, match=r"peft\.prefix\.shift=true"):
        to_peft(source, tmp_path)
    _, folder = publish(tmp_path / "rows", "BertForSequenceClassification", num_labels=2)
    rows = plmctl.load(folder)
    config = {**rows.config, "peft": {"prompt": {**VECTORS["prompt"][1], "length": 3}}}
    model = build_model(config, vocab_size=rows.source.vocab_size, seed=5)
    with pytest.raises(UsageError, match="reads the first vector before the text"):
        to_peft(replace(rows.source, config=config, tensors=tensors_of(model)), tmp_path)


def test_a_fused_map_of_the_published_model_is_refused(tmp_path: Path) -> None:
    _, folder = publish(tmp_path / "base", "GPT2LMHeadModel")
    loaded = plmctl.load(folder)
    config = {**loaded.config, "peft": {"lora": NODES["lora"]}}
    model = build_model(config, vocab_size=loaded.source.vocab_size, seed=5)
    source = replace(loaded.source, config=config, tensors=tensors_of(model))
    with pytest.raises(UsageError, match="no linear map for query alone"):
        to_peft(source, tmp_path)
