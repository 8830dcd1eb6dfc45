"""The weights of a model that writes, in the layout of CTranslate2.

A part of a model is found by its class. One without a line in the tables below is refused by its
name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from plmctl.attention.patterns.base import Full, Pattern
from plmctl.attention.patterns.causal import Causal
from plmctl.core.errors import UsageError, list_problems
from plmctl.generation.decode import find_writing_head
from plmctl.heads.lm import LMHead
from plmctl.models.base import Model
from plmctl.models.encoder import Encoder
from plmctl.models.encoder_decoder import LAST, EncoderDecoder
from plmctl.nn.cells.attention import Attention
from plmctl.nn.cells.cross_attention import CrossAttention
from plmctl.nn.cells.feedforward import ACTIVATIONS, FeedForward
from plmctl.nn.cells.glu import GLU
from plmctl.nn.embeddings import Embedding
from plmctl.nn.norm import RMSNorm
from plmctl.nn.positions import ALiBi, Learned, NoPosition, RelativeBuckets, Rotary, Sinusoidal
from plmctl.nn.residual import Block
from plmctl.nn.scores import Dot
from plmctl.nn.stack import Stack
from plmctl.nn.tables import TokenTable
from plmctl.runtime.graph import refuse

LONGEST = 1024  # positions of a model that counts without an end
ACTS = {  # by the names of `ctranslate2.specs.common_spec.Activation`
    "gelu": "GELU",
    "gelu_tanh": "GELUTanh",
    "relu": "RELU",
    "silu": "SWISH",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
}
NORMS = {nn.LayerNorm: False, RMSNorm: True}  # whether it is an RMS norm
READ, WRITE = (Attention,), (Attention, CrossAttention)  # the cells before the feed-forward one
FORWARD = {FeedForward: False, GLU: True}  # whether it has a gate


@dataclass(frozen=True)
class StackLayout:
    """The settings of one stack.

    Args:
        layers: The blocks of each layer, in their order.
        how: The arguments of the specification of CTranslate2.
        eps: The numbers that the norms add to a variance.
    """

    layers: Sequence[Sequence[Block]]
    how: Mapping[str, Any]
    eps: frozenset[float]


def make_spec(library: Any, model: Model, tokens: Sequence[str], roles: Mapping[str, int]) -> Any:
    """The model as a specification of CTranslate2, with weights of its own in fp32.

    Args:
        library: The module `ctranslate2`.
        model: A model that writes.
        tokens: [V] the spelling of each token; rows of the tables behind them are left out.
        roles: The numbers of the tokens `bos`, `eos` and `unk`.

    Raises:
        UsageError: CTranslate2 has no such part.
    """
    try:
        head, backbone = model.heads[find_writing_head(model)], model.backbone
    except UsageError as error:
        raise refuse(f"CTranslate2 writes texts: {list_problems(error)}") from error
    if type(backbone) not in BACKBONES:
        raise lack(f"model {type(backbone).__name__}")
    if type(head) is not LMHead or head.dense is not None:
        what = type(head).__name__
        raise lack(f"head {what}{' with transform' if type(head) is LMHead else ''}")
    names = make_unique(tokens)
    spec, decoder, eps = BACKBONES[type(backbone)](library, backbone, names)
    if len(eps) > 1:
        raise lack(f"norms with unlike eps in a model: {', '.join(map(str, sorted(eps)))}")
    decoder.projection.weight = copy(head.table[: len(names)])
    if head.bias is not None:
        decoder.projection.bias = copy(head.bias[: len(names)])
    if head.factor != 1.0:
        decoder.scale_outputs = float(head.factor)
    (spec.config.layer_norm_epsilon,) = eps or {1e-5}
    for role in ("bos", "eos", "unk"):
        setattr(spec.config, f"{role}_token", names[roles.get(role, 0)])
    return spec


def lack(what: str) -> UsageError:
    """The error for a part that CTranslate2 has not."""
    return refuse(f"CTranslate2 has no {what}")


def copy(tensor: Tensor) -> np.ndarray:
    """The numbers in fp32. CTranslate2 changes its arrays, so they are no views."""
    return tensor.detach().float().cpu().numpy().copy()


def make_unique(tokens: Sequence[str]) -> list[str]:
    """Spellings of which no two are equal."""
    found: dict[str, None] = {}
    for number, token in enumerate(tokens):
        found[token if token not in found else f"{token}<{number}>"] = None
    return [*found]


def _make_decoder(
    library: Any, backbone: Any, tokens: Sequence[str]
) -> tuple[Any, Any, set[float]]:
    layout = _read_stack(library, backbone, READ, causal=True)
    kinds = library.specs.transformer_spec
    decoder = kinds.TransformerDecoderSpec(**layout.how, with_encoder_attention=False)
    _fill(decoder, decoder.embeddings, backbone, layout, len(tokens))
    spec = kinds.TransformerDecoderModelSpec(decoder)
    spec.register_vocabulary(tokens)
    return spec, decoder, {*layout.eps}


def _make_pair(library: Any, backbone: Any, tokens: Sequence[str]) -> tuple[Any, Any, set[float]]:
    if backbone.front is not None:
        raise lack("encoder before the encoder (model.front)")
    if backbone.unread is not None:
        raise lack("tokens that cross-attention leaves out (model.unread)")
    if backbone.forced is not None:
        raise lack("first token that a model forces (model.forced)")
    if backbone.start == LAST:
        raise lack("decoder that begins with the language of its text (model.start=last)")
    kinds = library.specs.transformer_spec
    own = _read_stack(library, backbone.encoder, READ, causal=False)
    layout = _read_stack(library, backbone.decoder, WRITE, causal=True)
    encoder = kinds.TransformerEncoderSpec(**own.how)
    decoder = kinds.TransformerDecoderSpec(**layout.how)
    _fill(encoder, encoder.embeddings[0], backbone.encoder, own, len(tokens))
    _fill(decoder, decoder.embeddings, backbone.decoder, layout, len(tokens))
    spec = kinds.TransformerSpec(encoder, decoder)
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.decoder_start_token = tokens[backbone.start]
    return spec, decoder, {*own.eps, *layout.eps}


BACKBONES: Mapping[type, Callable[..., tuple[Any, Any, set[float]]]] = {
    Encoder: _make_decoder,
    EncoderDecoder: _make_pair,
}


def _read_stack(
    library: Any, encoder: Encoder, before: Sequence[type], *, causal: bool
) -> StackLayout:
    """The settings of a stack whose layers are cells of `before` and a feed-forward cell."""
    _refuse_pattern(encoder.pattern, causal=causal)
    _refuse_embedding(encoder)
    stack = encoder.stack
    layers = _list_layers(stack, before)
    blocks = [block for layer in layers for block in layer]
    attention = [block.cell for layer in layers for block in layer[:-1]]
    forward = [layer[-1].cell for layer in layers]
    norms: list[Any] = [
        norm for block in blocks for norm in (block.norm_in, block.norm_sum) if is_there(norm)
    ]
    around: list[Any] = [stack.final_norm, encoder.embedding.norm]
    kind = only((type(norm) for norm in [*norms, *filter(is_there, around)]), "norms")
    if kind not in NORMS:
        raise lack(f"norm {kind.__name__}")
    act = only((_name_activation(cell) for cell in forward), "activations")
    heads = only((cell.num_heads for cell in attention), "numbers of heads")
    width = only((cell.head_width for cell in attention), "widths of heads")
    normed = only((cell.q_norm is not None for cell in _list_own(attention)), "norms of queries")
    how: dict[str, Any] = {
        "num_layers": len(layers),
        "num_heads": heads,
        "pre_norm": only((is_there(block.norm_in) for block in blocks), "positions of norms"),
        "no_final_norm": not is_there(stack.final_norm),
        "activation": library.specs.common_spec.Activation[act],
        "layernorm_embedding": is_there(encoder.embedding.norm),
        "rms_norm": NORMS[kind],
        "ffn_glu": only((FORWARD[type(cell)] for cell in forward), "feed-forward cells"),
        "qk_norm": normed,
    }
    if heads * width != encoder.width:
        how["head_dim"] = width
    how |= _read_position(encoder.position, causal=causal)
    eps = {norm.eps for norm in norms}
    eps |= {cell.q_norm.eps for cell in _list_own(attention) if cell.q_norm is not None}
    return StackLayout(layers, how, frozenset(eps))


def is_there(part: nn.Module) -> bool:
    """Whether a slot is filled."""
    return not isinstance(part, nn.Identity)


def only(values: Iterable[Any], what: str) -> Any:
    """The single value of all; UsageError for unlike ones."""
    found = {*values}
    if len(found) != 1:
        raise lack(f"stack with unlike {what}")
    return found.pop()


def _list_own(cells: Iterable[Any]) -> list[Any]:
    """The cells of self-attention."""
    return [cell for cell in cells if type(cell) is Attention]


def _list_layers(stack: Stack, before: Sequence[type]) -> list[list[Block]]:
    """The blocks of each layer; UsageError for other layers than of `before` and feed-forward."""
    for name in ("halting", "weighted", "reversible", "columns_remark"):
        if getattr(stack, name):
            raise lack(f"stack with {name.partition('_')[0]} (model.stack)")
    layers: list[list[Block]] = []
    for rounds in stack.rounds:
        if any(len(steps) > 1 for steps in rounds):
            raise lack("cells in parallel (model.stack.layout)")
        blocks = [stack.block(step) for ((_, step),) in rounds]
        for block in blocks:
            _refuse_block(block, before)
        kinds = [type(block.cell) for block in blocks]
        if kinds[:-1] != [*before] or kinds[-1] not in FORWARD:
            order = ", ".join(kind.__name__ for kind in kinds)
            raise lack(f"layer of {order} (model.stack.layout)")
        layers.append(blocks)
    return layers


def _refuse_block(block: Block, before: Sequence[type]) -> None:
    """UsageError for a cell or a residual connection that CTranslate2 has not."""
    cell: Any = block.cell
    name = type(cell).__name__
    if type(cell) not in (*before, *FORWARD):
        raise lack(f"cell {name}")
    if type(block) is not Block or is_there(block.norm_out):
        raise lack(f"residual connection as that of {name} (model.stack.residual)")
    if is_there(block.norm_in) == is_there(block.norm_sum):
        raise lack(f"norm before and after the sum of {name} (model.stack.residual)")
    if getattr(cell, "weigh", None) is not None:
        raise lack(f"weights of attention {type(cell.weigh).__name__}")
    if getattr(cell, "prefix", None) is not None:
        raise lack("learned prefix before the tokens")
    if not isinstance(getattr(cell, "score", nn.Identity()), nn.Identity | Dot):
        raise lack(f"score {type(cell.score).__name__}")
    if not is_there(getattr(cell, "qkv", cell)):
        raise lack("attention without projections")
    if is_there(getattr(cell, "norm", nn.Identity())):
        raise lack(f"norm inside of {name}")


def _name_activation(cell: Any) -> str:
    """The name of an activation in CTranslate2."""
    name = next((key for key, own in ACTIVATIONS.items() if own is cell.activation), "")
    if name not in ACTS:
        raise lack(f"activation {name}")
    return ACTS[name]


def _refuse_pattern(pattern: Pattern, *, causal: bool) -> None:
    """UsageError unless all tokens see each other, or with `causal` those before them."""
    wanted = (Causal() if causal else Full()).sight().heads[0]
    sight = pattern.sight(segment=0)
    same = all((own.first, *own.steps) == (wanted.first, *wanted.steps) for own in sight.heads)
    if not (same and sight.exact and pattern.prefix_segments is None and pattern.layers == 1):
        own = getattr(pattern, "parts", [pattern])
        while hasattr(own[0], "parts"):
            own = own[0].parts
        raise lack(f"pattern {type(own[0]).__name__} in {'a decoder' if causal else 'an encoder'}")


def _refuse_embedding(encoder: Encoder) -> None:
    """UsageError for vectors of more than tokens and positions."""
    own = encoder.embedding
    extra = own.segment is not None or own.language is not None or len(own.tracks) > 0
    if type(own) is not Embedding or extra or is_there(own.project):
        raise lack("embedding of other things than tokens and positions (model.embedding)")
    if own.norm_first:
        raise lack("positions that are added after the norm (model.embedding.norm_first)")
    if type(own.token) is not TokenTable:
        raise lack(f"table of tokens {type(own.token).__name__}")
    if encoder.prompt is not None or encoder.offset:
        raise lack("learned prompt before the tokens")


def _read_position(position: Any, *, causal: bool) -> dict[str, Any]:
    """The arguments of a specification for positions."""
    if type(position) not in POSITIONS or (type(position) is ALiBi and not causal):
        raise lack(f"position {type(position).__name__}{'' if causal else ' in an encoder'}")
    if type(position) is Rotary:
        if position.layers > 1:
            raise lack("position Rotary with a base for each layer (position.base)")
        if position.turns_values:
            raise lack("position Rotary of values (position.values)")
        pairs = {"rotary_interleave": position.adjacent, "rotary_base": position.base}
        return {"rotary_dim": 0, **pairs}
    if type(position) is RelativeBuckets:
        if position.bidirectional == causal:
            raise lack("position with buckets of the other direction (position.bidirectional)")
        return {"relative_attention_bias": True}
    if type(position) is ALiBi:
        if position.num_heads & (position.num_heads - 1):
            raise lack("position ALiBi of heads that are no power of two")
        return {"alibi": True}
    return {}


def _list_positions(position: Any, width: int) -> Tensor:
    """[N, W] the vectors that are added to those of tokens."""
    return position.embed(torch.zeros(1, LONGEST, width), torch.arange(LONGEST)[None])[0]


# the vectors of positions, or None where they act inside of attention
POSITIONS: Mapping[type, Callable[[Any, int], Tensor] | None] = {
    Learned: lambda position, width: position.table.weight,
    Sinusoidal: _list_positions,
    NoPosition: _list_positions,
    Rotary: None,
    RelativeBuckets: None,
    ALiBi: None,
}


def _fill(
    spec: Any, embeddings: Any, encoder: Encoder, layout: StackLayout, vocab_size: int
) -> None:
    """Put the weights of a stack, of its embedding and of its positions into a specification."""
    own: Any = encoder.embedding
    embeddings.weight = copy(own.token.weight[:vocab_size])
    spec.scale_embeddings = float(own.factor)
    if is_there(own.norm):
        _fill_norm(spec.layernorm_embedding, own.norm)
    if is_there(encoder.stack.final_norm):
        _fill_norm(spec.layer_norm, encoder.stack.final_norm)
    if (vectors := POSITIONS[type(encoder.position)]) is not None:
        spec.position_encodings.encodings = copy(vectors(encoder.position, own.width))
    for layer, blocks in zip(spec.layer, layout.layers, strict=True):
        slots = [layer.self_attention, layer.ffn]
        slots[1:1] = [layer.attention] if len(blocks) == 3 else []
        for slot, block in zip(slots, blocks, strict=True):
            _fill_norm(
                slot.layer_norm, block.norm_in if is_there(block.norm_in) else block.norm_sum
            )
            FILLS[type(block.cell)](slot, block.cell)
        if type(encoder.position) is RelativeBuckets:
            layer.self_attention.relative_attention_bias = copy(encoder.position.table.weight)
            layer.self_attention.relative_attention_max_distance = np.int32(
                encoder.position.max_distance
            )


def _fill_norm(spec: Any, norm: Any) -> None:
    spec.gamma = copy(norm.weight)
    if getattr(norm, "bias", None) is not None:
        spec.beta = copy(norm.bias)


def _fill_linear(spec: Any, weight: Tensor, bias: Tensor | None) -> None:
    spec.weight = copy(weight)
    if bias is not None:
        spec.bias = copy(bias)


def _fill_attention(spec: Any, cell: Any) -> None:
    rows = 1 + max(cell.map_of)

    def lay_out(tensor: Tensor) -> Tensor:
        parts = tensor.chunk(rows)
        return torch.cat([parts[index] for index in cell.map_of])

    bias = cell.qkv.bias
    _fill_linear(spec.linear[0], lay_out(cell.qkv.weight), None if bias is None else lay_out(bias))
    _fill_linear(spec.linear[1], cell.out.weight, cell.out.bias)
    _fill_scale(spec, cell)
    if cell.q_norm is not None:
        _fill_norm(spec.q_norm, cell.q_norm)
        _fill_norm(spec.k_norm, cell.k_norm)


def _fill_cross(spec: Any, cell: Any) -> None:
    for own, linear in zip(spec.linear, (cell.q, cell.kv, cell.out), strict=True):
        _fill_linear(own, linear.weight, linear.bias)
    _fill_scale(spec, cell)


def _fill_scale(spec: Any, cell: Any) -> None:
    if isinstance(cell.score, Dot):  # otherwise 1 / sqrt(D)
        spec.queries_scale = 1.0


def _fill_forward(spec: Any, cell: Any) -> None:
    _fill_linear(spec.linear_0, cell.up.weight, cell.up.bias)
    _fill_linear(spec.linear_1, cell.down.weight, cell.down.bias)


def _fill_gated(spec: Any, cell: Any) -> None:
    _fill_linear(spec.linear_0, cell.gate.weight, cell.gate.bias)
    _fill_linear(spec.linear_0_noact, cell.up.weight, cell.up.bias)
    _fill_linear(spec.linear_1, cell.down.weight, cell.down.bias)


FILLS: Mapping[type, Callable[[Any, Any], None]] = {
    Attention: _fill_attention,
    CrossAttention: _fill_cross,
    FeedForward: _fill_forward,
    GLU: _fill_gated,
}
