"""The recipes of Transformer, BART and T5 against the classes of `transformers` with the same
random weights, in float64.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from plmctl.artifacts.assemble import build_model
from plmctl.config.compose import compose
from plmctl.core.batch import Batch, Seq
from plmctl.heads.features import EncoderStates, read
from plmctl.models.base import Model
from plmctl.runs.contract.stand_in import TINY

transformers = pytest.importorskip("transformers")
SIZE = [
    "size.num_layers=2",
    "size.width=32",
    "size.num_heads=4",
    "size.inner_width=48",
    "data.path=x",
]
V, S, T = 70, 19, 13
LENGTHS = [S, 11, 6]


def ours(recipe: str, *settings: str) -> Model:
    cfg = compose("pretrain", recipe, [*SIZE, *settings])
    return build_model(cfg, vocab_size=V, vocab=TINY, seed=0).double().eval()


def randomised(theirs: Any) -> Any:
    torch.manual_seed(0)
    theirs = theirs.double().eval()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if "embed_positions" not in name or isinstance(
                theirs, transformers.BartForConditionalGeneration
            ):
                parameter.copy_(
                    0.3 * torch.randn_like(parameter) + (1.0 if "norm.weight" in name else 0.0)
                )
    return theirs


def batch() -> tuple[Batch, dict[str, Tensor]]:
    torch.manual_seed(1)
    source, target = torch.randint(5, V, (3, S)), torch.randint(5, V, (3, T))
    previous = torch.cat([torch.full((3, 1), 2), target[:, :-1]], 1)
    real = torch.arange(S) < torch.tensor(LENGTHS)[:, None]
    made = Batch(
        torch.arange(3),
        {
            "source": Seq(source, torch.tensor(LENGTHS)),
            "target": Seq(target, torch.full((3,), T), {"previous": previous}, True),
        },
    )
    source = source.masked_fill(~real, 1)
    return made, {"input_ids": source, "attention_mask": real.long(), "decoder_input_ids": previous}


def put(table: dict[str, Tensor], model: Model) -> None:
    """Every tensor of the model but tables' spare rows, each exactly once."""
    with torch.no_grad():
        left = dict(model.named_parameters())
        for name, value in table.items():
            left.pop(f"backbone.{name}")[: len(value)].copy_(value)
    assert set(left) <= {"heads.seq2seq.weight"}


def fairseq_layer(
    theirs: dict[str, Tensor], there: str, here: str, number: int, decoder: bool
) -> dict[str, Tensor]:
    """The names of BART and FSMT, one layer: q, k, v fused, and a norm behind each cell."""
    made: dict[str, Tensor] = {}
    layer, blocks = f"{there}.layers.{number}.", f"{here}.stack.blocks."
    for kind in ("weight", "bias"):

        def part(name: str, kind: str = kind) -> Tensor:
            return theirs[f"{layer}{name}.{kind}"]

        made[f"{blocks}a.{number}.cell.qkv.{kind}"] = torch.cat(
            [part(f"self_attn.{x}_proj") for x in "qkv"]
        )
        made[f"{blocks}a.{number}.cell.out.{kind}"] = part("self_attn.out_proj")
        made[f"{blocks}a.{number}.norm_sum.{kind}"] = part("self_attn_layer_norm")
        made[f"{blocks}f.{number}.cell.up.{kind}"], made[f"{blocks}f.{number}.cell.down.{kind}"] = (
            part("fc1"),
            part("fc2"),
        )
        made[f"{blocks}f.{number}.norm_sum.{kind}"] = part("final_layer_norm")
        if decoder:
            made[f"{blocks}c.{number}.cell.q.{kind}"] = part("encoder_attn.q_proj")
            made[f"{blocks}c.{number}.cell.kv.{kind}"] = torch.cat(
                [part(f"encoder_attn.{x}_proj") for x in "kv"]
            )
            made[f"{blocks}c.{number}.cell.out.{kind}"] = part("encoder_attn.out_proj")
            made[f"{blocks}c.{number}.norm_sum.{kind}"] = part("encoder_attn_layer_norm")
    return made


def fairseq(theirs: dict[str, Tensor]) -> dict[str, Tensor]:
    layers = [(side, n) for side in ("encoder", "decoder") for n in range(2)]
    return {
        k: v
        for side, n in layers
        for k, v in fairseq_layer(theirs, f"model.{side}", side, n, side == "decoder").items()
    }


@torch.no_grad()
def assert_same_states(model: Model, encoder: Any, atol: float) -> None:
    """Heads read the encoder with features=encoder, also where the decoder has the same text."""
    made, given = batch()
    text = Batch(made.key, {"text": made.seqs["source"]})
    of_decoder = read(model, text)
    model.heads["features"] = EncoderStates(width=32, num_layers=2)
    names = ("input_ids", "attention_mask")
    wanted = encoder(**{name: given[name] for name in names}).last_hidden_state
    found = read(model, text)
    assert torch.equal(read(model, text, model(text)), found)  # the backbone reads it once more
    for row, real in enumerate(LENGTHS):
        own = found[row, :real]
        torch.testing.assert_close(own, wanted[row, :real], atol=atol, rtol=atol)
        assert not torch.allclose(of_decoder[row, :real], own, atol=0.1)


def assert_same_outputs(model: Model, theirs: Any, atol: float) -> None:
    made, given = batch()
    wanted = theirs(**given, use_cache=False)
    hidden = model(made)
    for row, real in enumerate(LENGTHS):
        torch.testing.assert_close(
            hidden.streams["encoder"][row, :real],
            wanted.encoder_last_hidden_state[row, :real],
            atol=atol,
            rtol=atol,
        )
    torch.testing.assert_close(
        model.heads["seq2seq"](hidden.last), wanted.logits, atol=atol, rtol=atol
    )


def test_transformer(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.fsmt import modeling_fsmt

    # theirs is for fp32 alone
    monkeypatch.setattr(modeling_fsmt, "fill_with_neg_inf", lambda x: torch.full_like(x, -1e30))
    config = transformers.FSMTConfig(
        langs=["a", "b"],
        src_vocab_size=V,
        tgt_vocab_size=V,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        dropout=0.0,
        attention_dropout=0.0,
        max_position_embeddings=40,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
    )
    theirs = randomised(transformers.FSMTForConditionalGeneration(config))
    # tied, as ours and as fairseq's
    theirs.model.decoder.output_projection.weight = theirs.model.decoder.embed_tokens.weight
    first = config.pad_token_id + 1
    model = ours(
        "transformer",
        "model.tied=false",
        "position.frequencies=released",
        f"+position.first={first}",
    )
    state = theirs.state_dict()
    tables = {
        f"{side}.embedding.token.weight": state[f"model.{side}.embed_tokens.weight"]
        for side in ("encoder", "decoder")
    }
    put(fairseq(state) | tables, model)
    assert_same_outputs(model, theirs, 2e-6)  # their sines are fp32


def test_bart() -> None:
    config = transformers.BartConfig(
        vocab_size=V,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        max_position_embeddings=40,
        dropout=0.0,
        attention_dropout=0.0,
    )
    theirs = randomised(transformers.BartForConditionalGeneration(config))
    model, state = ours("bart", "format.max_length=40"), theirs.state_dict()
    table = fairseq(state) | {"encoder.embedding.token.weight": state["model.shared.weight"]}
    for side in ("encoder", "decoder"):
        # place p is row p + 2
        table[f"{side}.position.table.weight"] = state[f"model.{side}.embed_positions.weight"][2:]
        for kind in ("weight", "bias"):
            table[f"{side}.embedding.norm.{kind}"] = state[
                f"model.{side}.layernorm_embedding.{kind}"
            ]
    put(table, model)
    assert_same_outputs(model, theirs, 1e-10)


@pytest.mark.parametrize("gated", [False, True])
def test_t5(gated: bool) -> None:
    config = transformers.T5Config(
        vocab_size=V,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        layer_norm_epsilon=1e-6,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=12,
        pad_token_id=0,
        decoder_start_token_id=2,
        feed_forward_proj="gated-gelu" if gated else "relu",
    )
    theirs = randomised(transformers.T5ForConditionalGeneration(config))
    cell = "model.decoder.stack.cells.f"
    newer = (
        [f"{cell}._target_=plmctl.nn.cells.glu.GLU", f"{cell}.activation=gelu_tanh"]
        if gated
        else []
    )
    model, state = (
        ours("t5", "position.buckets=8", "position.max_distance=12", *newer),
        theirs.state_dict(),
    )
    table = {"encoder.embedding.token.weight": state["shared.weight"]}
    for side in ("encoder", "decoder"):
        table[f"{side}.stack.final_norm.weight"] = state[f"{side}.final_layer_norm.weight"]
        attention = f"{side}.block.0.layer.0.SelfAttention"
        table[f"{side}.position.table.weight"] = state[
            f"{attention}.relative_attention_bias.weight"
        ]
        for n in range(2):
            table |= t5_layer(state, f"{side}.block.{n}.layer", f"{side}.stack.blocks", n, gated)
    put(table, model)
    assert_same_outputs(model, theirs, 1e-5)  # their norms are fp32
    encoder = transformers.T5EncoderModel(config).double().eval()
    encoder.load_state_dict({name: state[name] for name in encoder.state_dict()})
    assert_same_states(model, encoder, 1e-5)


def t5_layer(
    state: dict[str, Tensor], there: str, here: str, n: int, gated: bool
) -> dict[str, Tensor]:
    cross = f"{there}.1.EncDecAttention.q.weight" in state
    norm, own = (
        lambda place: state[f"{there}.{place}.layer_norm.weight"],
        f"{there}.0.SelfAttention",
    )
    last = 2 if cross else 1
    made = {
        f"{here}.a.{n}.cell.qkv.weight": torch.cat([state[f"{own}.{x}.weight"] for x in "qkv"]),
        f"{here}.a.{n}.cell.out.weight": state[f"{own}.o.weight"],
        f"{here}.a.{n}.norm_in.weight": norm(0),
        f"{here}.f.{n}.norm_in.weight": norm(last),
        f"{here}.f.{n}.cell.down.weight": state[f"{there}.{last}.DenseReluDense.wo.weight"],
    }
    names = {"gate": "wi_0", "up": "wi_1"} if gated else {"up": "wi"}
    made |= {
        f"{here}.f.{n}.cell.{k}.weight": state[f"{there}.{last}.DenseReluDense.{v}.weight"]
        for k, v in names.items()
    }
    if cross:
        other = f"{there}.1.EncDecAttention"
        made[f"{here}.c.{n}.cell.q.weight"] = state[f"{other}.q.weight"]
        made[f"{here}.c.{n}.cell.kv.weight"] = torch.cat(
            [state[f"{other}.{x}.weight"] for x in "kv"]
        )
        made[f"{here}.c.{n}.cell.out.weight"] = state[f"{other}.o.weight"]
        made[f"{here}.c.{n}.norm_in.weight"] = norm(1)
    return made
