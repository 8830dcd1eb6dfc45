"""An encoder made long by `plmctl convert --max-length`: its answers stay, its positions are copied
again and again, and training goes on from it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import plmctl
from plmctl.artifacts.convert import convert
from plmctl.artifacts.lengthen import TABLE, lengthen
from plmctl.artifacts.loading import load, open_source
from plmctl.config import compose as config
from plmctl.config.command import perform
from plmctl.core.errors import ConfigError
from plmctl.models.base import Model
from tests.artifacts.test_shrinking import batch, built, source
from tests.interop.publishing import VOCAB, publish

SMALL = [
    "tokenizer=char",
    "size=tiny",
    "size.width=16",
    "size.num_heads=2",
    "size.inner_width=32",
    "format.max_length=16",
]
TRAIN = ["train.precision=fp32", "train.threads=1", "train.steps=2", "train.batch_size=2"]


@pytest.mark.parametrize("recipe", ["bert", "roberta", "albert", "electra"])
def test_the_answers_stay_and_positions_repeat(recipe: str) -> None:
    short, model = source(recipe)
    long = lengthen(short, 40, reach=16)
    made, rows = built(long), batch()
    with torch.no_grad():
        wanted, states = model.backbone(rows).last, made.backbone(rows).last
    real = rows.text.real
    torch.testing.assert_close(states[real], wanted[real], rtol=1e-10, atol=1e-10)
    old, new = short.tensors[TABLE], long.tensors[TABLE]
    assert torch.equal(new, torch.cat([old, old, old[:8]]))
    assert made.backbone.max_length == 40
    assert len(old) == 16  # the source is as it was
    usual = built(lengthen(short, 40))  # sees an old row to either side
    assert torch.equal(usual.backbone(rows).last[real], states[real])
    narrow = built(lengthen(short, 40, reach=1))
    assert not torch.allclose(narrow.backbone(rows).last[real], wanted[real])


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "name", ["BertForMaskedLM", "RobertaForMaskedLM", "AlbertForMaskedLM", "ElectraForPreTraining"]
)
def test_published_models(name: str, tmp_path: Path) -> None:
    """Their logits, through a folder; RoBERTa's two rows before the first position stay out."""
    theirs, folder = publish(tmp_path / "short", name)
    convert(folder, tmp_path / "long", to="plmctl", max_length=30, reach=12)
    model: Model = load(tmp_path / "long").model
    ids = torch.randint(2, VOCAB, (2, 12), generator=torch.Generator().manual_seed(0))
    rows = batch()
    rows = type(rows)(rows.key, {"text": type(rows.text)(ids, torch.tensor([12, 12]), full=True)})
    with torch.no_grad():
        base = getattr(theirs, theirs.base_model_prefix)
        wanted = base(ids).last_hidden_state
        torch.testing.assert_close(model.backbone(rows).last, wanted, rtol=1e-5, atol=1e-5)
    table = open_source(tmp_path / "long").tensors[TABLE]
    places = base.embeddings.position_embeddings.weight[-12:]
    assert torch.equal(table, torch.cat([places, places, places[:6]]))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("modern_encoder", []),
        ("modern_encoder", ["position=learned"]),
        ("bert", ["position=alibi"]),
        ("bert", ["position=relative_buckets"]),
    ],
)
def test_positions_without_a_last_one_stay(recipe: str, words: list[str]) -> None:
    """States in rows of the old length are what they were, also behind a short convolution."""
    short, model = source(recipe, *words)
    long = lengthen(short, 40, reach=16)
    made, rows = built(long), batch()
    with torch.no_grad():
        wanted, states = model.backbone(rows).last, made.backbone(rows).last
    real = rows.text.real
    torch.testing.assert_close(states[real], wanted[real], rtol=1e-10, atol=1e-10)
    assert any("global_maps" in name for name in long.tensors)
    narrow = built(lengthen(short, 40, reach=2))
    assert not torch.allclose(narrow.backbone(rows).last[real], wanted[real])
    assert lengthen(short, 40).config["pattern"]["parts"][0]["reach"] == 16  # an old row


def test_nothing_is_copied_where_nothing_is_learned() -> None:
    with pytest.raises(ConfigError, match="a model with learned positions"):
        lengthen(source("bert", "position=rotary")[0], 40, reach=4, without=["copies"])


def test_arms_of_the_ablations() -> None:
    """Table 5: new positions that are drawn; table 10: no projections of global tokens."""
    short, model = source("roberta")
    long = lengthen(short, 40, reach=16, without=("copies", "projections"))
    old, new = short.tensors[TABLE], long.tensors[TABLE]
    assert torch.equal(new[:16], old)
    assert new[16:].std().item() == pytest.approx(0.02, rel=0.1)
    assert not any("global_maps" in name for name in long.tensors)
    made, rows = built(long), batch()
    with torch.no_grad():
        wanted, states = model.backbone(rows).last, made.backbone(rows).last
    real = rows.text.real
    torch.testing.assert_close(states[real], wanted[real], rtol=1e-10, atol=1e-10)
    assert made.backbone.pattern.find_global(rows.text) is not None


@pytest.mark.parametrize("recipe", ["bert", "albert", "bart"])
def test_a_long_model_made_longer(recipe: str) -> None:
    """It keeps its window and its global projections, and its states in rows of the old length."""
    words = ["model.start=2"] if recipe == "bart" else []
    long = lengthen(source(recipe, *words)[0], 24, reach=4)
    generator = torch.Generator().manual_seed(1)
    trained = {  # global tokens have learned projections that are no copies any more
        name: tensor + 0.1 * torch.randn(tensor.shape, generator=generator, dtype=tensor.dtype)
        if "global_maps" in name
        else tensor
        for name, tensor in long.tensors.items()
    }
    long = replace(long, tensors=trained)
    longer = lengthen(long, 64)
    assert longer.config["pattern"] == long.config["pattern"]
    first, second = built(long), built(longer)
    rows = batch("source", "target") if recipe == "bart" else batch()
    assert torch.equal(first.backbone(rows).last, second.backbone(rows).last)
    assert second.backbone.max_length == 64
    table = TABLE.replace("backbone.", "backbone.encoder.") if recipe == "bart" else TABLE
    old, new = long.tensors[table], longer.tensors[table]
    assert torch.equal(new, torch.cat([old, old, old[:16]]))
    wider = lengthen(long, 64, reach=8)
    assert not torch.allclose(built(wider).backbone(rows).last, first.backbone(rows).last)


def run_verb(verb: str, recipe: str | None, *words: str) -> object:
    return perform(config.compose(verb, recipe, list(words)).asked())


@pytest.mark.slow
def test_training_goes_on_from_it(
    small_text: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = f"data.path={small_text}"
    assert (
        run_verb("pretrain", "roberta", data, *SMALL, *TRAIN, f"run.dir={tmp_path / 'short'}") == 0
    )
    convert(tmp_path / "short", tmp_path / "long", to="plmctl", max_length=64, reach=4)
    further = [f"init={tmp_path / 'long'}", "pattern=longformer", "pattern.parts.0.reach=4"]
    further += [data, "format.max_length=64", "kernel=banded", "kernel.block=8", *TRAIN]
    assert run_verb("pretrain", "roberta", *further, f"run.dir={tmp_path / 'further'}") == 0
    assert "was trained with" not in "".join(capfd.readouterr())
    further[2] = "pattern.parts.0.reach=3"
    assert run_verb("pretrain", "roberta", *further, f"run.dir={tmp_path / 'nearer'}") == 0
    said = "".join(capfd.readouterr())
    assert "was trained with pattern.parts.0.reach=4; this run has 3" in said
    first, last = open_source(tmp_path / "long"), open_source(tmp_path / "further")
    moved = [
        name for name in first.tensors if not torch.equal(first.tensors[name], last.tensors[name])
    ]
    assert any("global_maps" in name for name in moved)
    words = [f"checkpoint={tmp_path / 'further'}", "task=classification", "task.path=builtin"]
    words += ["task.max_length=64", "train.epochs=null", *TRAIN, f"run.dir={tmp_path / 'tuned'}"]
    assert run_verb("finetune", None, *words) == 0
    tuned = plmctl.load(tmp_path / "tuned")
    assert tuned.model.backbone.max_length == 64


@pytest.mark.parametrize(
    ("recipe", "words", "length", "message"),
    [
        ("bert", [], 16, r"--max-length=16: more than 16, the positions .*\n  fix: --max-length"),
        ("bert", ["position=rotary"], 16, r"=16: more than 16, the tokens .*\n  fix: --max-length"),
        ("bert", ["position=axial", "position.shape=[4,4]"], 64, "learned positions in one table"),
        ("bert", ["pattern=window"], 64, "Encoder or EncoderDecoder with the pattern Full"),
        ("gpt2", [], 64, "Encoder or EncoderDecoder with the pattern Full"),
        ("bert", ["model.stack.layout=lf*2"], 64, "at least one cell of Attention"),
        ("bert", ["model.stack.cells.a.projections=shared"], 64, "projections to copy"),
        ("bert", [], 17, r"--reach=16: less than 16: .* all see all\n  fix: --reach 2  # or"),
    ],
)
def test_what_cannot_be_made_long(recipe: str, words: list[str], length: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        lengthen(source(recipe, *words)[0], length)


def test_a_reach_below_one() -> None:
    with pytest.raises(ConfigError, match=r"--reach=-1: 1 or more\n  fix: --reach 16"):
        lengthen(source("bert")[0], 64, reach=-1)


@pytest.mark.slow  # test_training_goes_on_from_it stays
def test_an_encoder_decoder_made_long_is_fine_tuned(
    small_text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Sources are as long as the encoder's places, targets as the decoder's."""
    data = [f"data.path={small_text}", *SMALL, "model.decoder.stack.layout=acf*1", *TRAIN]
    assert run_verb("pretrain", "bart", *data, f"run.dir={tmp_path / 'short'}") == 0
    convert(tmp_path / "short", tmp_path / "long", to="plmctl", max_length=64, reach=4)
    pairs = tmp_path / "pairs.tsv"
    lines = [f"{'word ' * 12}{n}\tnumber {n}" for n in range(20)]
    pairs.write_text("\n".join(["source\ttarget", *lines]) + "\n")
    words = ["task=seq2seq", f"task.path={pairs}", f"checkpoint={tmp_path / 'long'}", *TRAIN]
    words += ["task.max_length=64", "train.epochs=null", "task.metrics=[exact]"]
    with pytest.raises(ConfigError, match=r"task.max_target=17: .* 16, .*\n  fix: .*max_target=16"):
        run_verb("finetune", None, *words, "task.max_target=17", f"run.dir={tmp_path / 'a'}")
    with pytest.raises(ConfigError, match=r"task.max_length=65: at most 64"):
        run_verb("finetune", None, *words, "task.max_target=16", "task.max_length=65")
    assert "task.max_length=64 task.max_target=16" in capsys.readouterr().err
    words += ["task.max_target=16", f"run.dir={tmp_path / 'b'}"]
    assert run_verb("finetune", None, *words) == 0
    tuned = plmctl.load(tmp_path / "b").model.backbone
    assert (tuned.max_length, tuned.max_target) == (64, 16)
