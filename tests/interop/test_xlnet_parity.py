"""XLNet against `transformers`: permutation masks, predicted places, memory, segments, padding;
there and back bit for bit.
"""

from __future__ import annotations

from pathlib import Path
from types import MethodType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import plmctl
from plmctl.core.batch import Batch, Seq, Targets
from plmctl.core.errors import ConfigError
from plmctl.interop import hf
from tests.interop.test_families import assert_round_trip

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.parity

CLASSES = [
    "XLNetModel",
    "XLNetLMHeadModel",
    "XLNetForSequenceClassification",
    "XLNetForTokenClassification",
    "XLNetForQuestionAnsweringSimple",
    "XLNetForMultipleChoice",
]
DTYPES = {torch.float32: 1e-5, torch.float64: 1e-10}
T = 10


def published(folder: Path, name: str, **changes: Any) -> Any:
    settings = {
        "vocab_size": 40,
        "d_model": 16,
        "n_layer": 2,
        "n_head": 4,
        "d_inner": 24,
        "mem_len": 9,
        "reuse_len": 6,
    }
    torch.manual_seed(0)
    model = getattr(transformers, name)(
        transformers.XLNetConfig(**settings | {"num_labels": 2} | changes)
    ).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(folder)
    return model


def in_float64(model: Any) -> None:
    """Its sinusoids are computed in float32, whatever the type of the model; here in that of the
    weights.
    """
    inner = getattr(model, "transformer", model)

    def encoding(
        self: Any, qlen: int, klen: int, bsz: int | None = None, device: Any = None
    ) -> Tensor:
        inverse = 10000 ** (-torch.arange(0, self.d_model, 2).double() / self.d_model)
        return self.positional_embedding(torch.arange(klen, -qlen, -1).double(), inverse, bsz)

    inner.relative_positional_encoding = MethodType(encoding, inner)


def both(folder: Path, name: str, dtype: torch.dtype, **changes: Any) -> tuple[Any, Any]:
    model = published(folder, name, **changes).to(dtype)
    if dtype == torch.float64:
        in_float64(model)
    loaded = plmctl.load(folder)
    assert not loaded.source.unused
    return model, loaded.model.to(dtype)


def text(seed: int, **tracks: Tensor) -> Seq:
    ids = torch.randint(5, 40, (2, T), generator=torch.Generator().manual_seed(seed))
    return Seq(ids, torch.full((2,), T), tracks, full=True)


@torch.no_grad()
@pytest.mark.parametrize("dtype", DTYPES)
def test_permutations_with_memory(dtype: torch.dtype, tmp_path: Path) -> None:
    """Three rows one after the other: both streams, logits, and what is remembered."""
    model, ours = both(tmp_path, "XLNetLMHeadModel", dtype)
    close = {"rtol": 0, "atol": DTYPES[dtype]}
    mems, state = None, ours.backbone.fresh_state(2, torch.device("cpu"))
    for step in range(3):
        generator = torch.Generator().manual_seed(10 + step)
        order = (torch.stack([torch.randperm(T, generator=generator) for _ in range(2)]) - 5).clamp(
            min=0
        )
        segment = torch.tensor([[0] * 6 + [1] * 3 + [2], [0] * 4 + [1] * 5 + [2]])
        seq = text(step, order=order, segment=segment)
        asked = order > 0  # four in each row
        index = asked.flatten().nonzero()[:, 0]
        given = Batch(
            torch.arange(2),
            {"text": seq},
            {"plm": Targets(index, seq.ids.flatten()[index], len(index))},
            values={"continues": torch.tensor([step > 0] * 2)},
        )
        found = ours(given, state, frozenset({"hidden"}))
        state = found.state
        # theirs: 1 = may not attend, of the query stream; the content stream sees itself besides
        blocked = (order[:, :, None] <= order[:, None, :]) & (order[:, None, :] > 0)
        mapping = torch.nn.functional.one_hot(index % T, T).view(2, 4, T).to(dtype)
        wanted = model(
            seq.ids,
            mems=mems,
            perm_mask=blocked.to(dtype),
            target_mapping=mapping,
            token_type_ids=segment,
            use_mems=True,
            output_hidden_states=True,
        )
        mems = wanted.mems
        assert_close(
            ours.heads["plm"](found.streams["query"]), wanted.logits.flatten(0, 1), **close
        )
        # the streams take turns
        for mine, content in zip(found.recorded["hidden"], wanted.hidden_states[::2], strict=True):
            assert_close(mine, content, **close)
        kept = mems[0].shape[0]
        assert state.length.tolist() == [kept] * 2
        for mine, theirs in zip(state.layers, mems, strict=True):
            assert_close(mine[:, -kept:], theirs.transpose(0, 1), **close)


@pytest.mark.sampled(5)
@torch.no_grad()
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CLASSES)
def test_classes_agree(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """The content stream alone, padded behind the text, and each head; rows are decided about by
    their last token.
    """
    model, ours = both(tmp_path, name, dtype, num_labels=2 if "Question" in name else 3)
    close = {"rtol": 0, "atol": DTYPES[dtype]}
    segment = torch.tensor([[0] * 5 + [1] * 4 + [2], [0] * 9 + [2]])
    for length in ([T, T], [T, 7]):
        seq = text(3, segment=segment)
        seq = Seq(seq.ids, torch.tensor(length), seq.tracks, full=length[1] == T)
        last = ours(Batch(torch.arange(2), {"text": seq})).last
        given = {"attention_mask": seq.real.to(dtype), "token_type_ids": segment}
        wanted = model(seq.ids, **given) if name != "XLNetForMultipleChoice" else None
        real = seq.real
        if name == "XLNetModel":
            assert_close(last[real], wanted.last_hidden_state[real], **close)
        elif name == "XLNetLMHeadModel":
            assert_close(ours.heads["plm"](last)[real], wanted.logits[real], **close)
        elif name == "XLNetForTokenClassification":
            assert_close(ours.heads["tag"](last)[real], wanted.logits[real], **close)
        elif name == "XLNetForQuestionAnsweringSimple":
            spans = torch.stack([wanted.start_logits, wanted.end_logits], -1)
            assert_close(ours.heads["span"](last)[real], spans[real], **close)
        elif name == "XLNetForMultipleChoice":  # the rows are the choices of one example
            if length[1] == T:
                wanted = model(seq.ids[None], **{key: value[None] for key, value in given.items()})
                assert_close(
                    ours.heads["choice"](ours.heads["pooler"](last[:, -1]))[:, 0],
                    wanted.logits[0],
                    **close,
                )
        elif length[1] == T:  # theirs takes what stands last, padding or not
            assert_close(
                ours.heads["class"](ours.heads["pooler"](last[:, -1])), wanted.logits, **close
            )


@torch.no_grad()
def test_rows_padded_in_front_agree(tmp_path: Path) -> None:
    model, ours = both(tmp_path, "XLNetForSequenceClassification", torch.float64)
    real = torch.tensor([[True] * T, [False] * 3 + [True] * 7])
    seq = text(4, real=real)
    last = ours(Batch(torch.arange(2), {"text": Seq(seq.ids, real.sum(1), seq.tracks)})).last
    wanted = model(seq.ids, attention_mask=real.double()).logits
    assert_close(ours.heads["class"](ours.heads["pooler"](last[:, -1])), wanted, rtol=0, atol=1e-10)


@torch.no_grad()
def test_half_of_the_rows_backwards_agree(tmp_path: Path) -> None:
    """bi_data: what they know of halves of a batch, ours know of each row."""
    model = published(tmp_path, "XLNetModel").double()
    model.bi_data = True
    ours, seq = plmctl.load(tmp_path).model.double(), text(5)
    found = ours(
        Batch(torch.arange(2), {"text": seq}, values={"reversed": torch.tensor([False, True])})
    ).last
    assert_close(found, model(seq.ids).last_hidden_state, rtol=0, atol=1e-5)


@torch.no_grad()
def test_the_next_token_is_what_transformers_predicts(tmp_path: Path) -> None:
    """Token by token through the query stream; theirs asks a place behind the text that nobody
    sees, all else causal.
    """
    model, ours = both(tmp_path, "XLNetLMHeadModel", torch.float64, mem_len=None, reuse_len=None)
    seq, cache = text(6), ours.backbone.fresh_cache(Batch(torch.arange(2), {"text": text(6)}))
    for place in range(T - 1):
        one = Seq(seq.ids[:, place : place + 1], torch.ones(2).long(), full=True)
        found = ours.heads["plm"](ours(Batch(torch.arange(2), {"text": one}), cache).last[:, 0])
        count = place + 2
        blocked = torch.ones(count, count).triu(0).double().expand(2, -1, -1)
        mapping = torch.zeros(2, 1, count, dtype=torch.float64)
        mapping[:, 0, -1] = 1
        wanted = model(seq.ids[:, :count], perm_mask=blocked, target_mapping=mapping).logits[:, 0]
        assert_close(found, wanted, rtol=0, atol=1e-10)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CLASSES)
def test_there_and_back_is_bitwise(name: str, tmp_path: Path) -> None:
    assert_round_trip(
        published(tmp_path / "published", name, num_labels=2), tmp_path / "published", tmp_path
    )


def test_memory_comes_along_and_what_is_not_known_is_refused(tmp_path: Path) -> None:
    published(tmp_path / "a", "XLNetModel")
    source = plmctl.load(tmp_path / "a").source
    assert (source.config["model"]["memory"], source.config["model"]["reuse"]) == (9, 6)
    assert hf.export(source.config, source.tensors).settings["mem_len"] == 9
    for setting, value in (("clamp_len", 4), ("attn_type", "uni"), ("bi_data", True)):
        published(tmp_path / setting, "XLNetModel", **{setting: value})
        with pytest.raises(ConfigError, match=setting):
            plmctl.load(tmp_path / setting)


def test_a_decoder_of_the_same_cells_is_no_xlnet(tmp_path: Path) -> None:
    published(tmp_path, "XLNetModel")
    source = plmctl.load(tmp_path).source
    config = {**source.config, "pattern": {"_target_": "plmctl.attention.patterns.causal.Causal"}}
    with pytest.raises(ConfigError, match=r"pattern=Causal \(published: Full\)"):
        hf.export(config, source.tensors)
