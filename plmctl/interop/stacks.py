"""The common part of the families of encoder-decoders: the numbers of both stacks, our nodes for
them, and their tables of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plmctl.core.values import Whole
from plmctl.interop.bert import task_head
from plmctl.interop.family import Architecture, Family, Node, count_layers, lm_head
from plmctl.interop.names import NameRule, Tensors, Weights, find_missing, same
from plmctl.interop.settings import Config, Key, Numbers
from plmctl.interop.waves import warn_of_other_waves
from plmctl.models.encoder_decoder import LAST

HEAD, CELLS = "seq2seq", "plmctl.nn.cells"
SHARED = "shared.weight"
ENCODER = "encoder.embed_tokens.weight"
DECODER = "decoder.embed_tokens.weight"
# the first token of the decoder
START = Key(
    "decoder_start_token_id",
    "start",
    Whole | None,
    None,
    write=lambda start: None if start == LAST else start,
)
# the first token that it writes, such as the name of a language
FORCED = Key("forced_bos_token_id", "forced", Whole | None, None)
LONGEST = 1024
OUTPUT, BIAS = "lm_head.weight", "final_logits_bias"
TABLES: list[NameRule] = [
    same("backbone.encoder.embedding.token.weight", SHARED),
    same("backbone.decoder.embedding.token.weight", DECODER, optional=True),
]


def stack(
    letters: str,
    layers: int,
    heads: int,
    inner_width: int,
    *,
    attention: Node,
    inner: Node,
    residual: Node,
) -> Node:
    """A `Stack` of so many layers; `attention` and `inner` are the settings of its cells,
    `inner` with their `_target_`.
    """
    heads_of: Node = {"_partial_": True, "num_heads": heads, **attention}
    cells: Node = {"a": {"_target_": f"{CELLS}.attention.Attention", **heads_of}}
    if "c" in letters:
        cells["c"] = {"_target_": f"{CELLS}.cross_attention.CrossAttention", **heads_of}
    cells["f"] = {"_partial_": True, "inner_width": inner_width, **inner}
    return {
        "_target_": "plmctl.nn.stack.Stack",
        "layout": f"{letters}*{layers}",
        "cells": cells,
        "residual": residual,
    }


def encoder_decoder_nodes(
    numbers: Numbers,
    *,
    embedding: Node,
    positions: tuple[Node, Node],
    attention: Node,
    inner: Node,
    residual: Node,
    initializer: Node,
) -> Node:
    """size, pattern, position and model as conf/ composes them; `positions`: of encoder and
    decoder.
    """
    embedding = {
        "_target_": "plmctl.nn.embeddings.Embedding",
        "segments": 0,
        "dropout": numbers.dropout,
        **embedding,
    }
    parts = {"attention": attention, "inner": inner, "residual": residual}
    below = stack("af", numbers.num_layers, numbers.num_heads, numbers.inner_width, **parts)
    above = stack(
        "acf", numbers.decoder_layers, numbers.decoder_heads, numbers.decoder_inner_width, **parts
    )
    one: Node = {"_target_": "plmctl.models.encoder.Encoder", "embedding": embedding}
    return {
        "size": {
            name: getattr(numbers, name)
            for name in ("num_layers", "width", "num_heads", "inner_width")
        },
        "pattern": {"_target_": "plmctl.attention.patterns.base.Full"},
        "position": positions[0],
        "model": {
            "_target_": "plmctl.models.encoder_decoder.EncoderDecoder",
            "start": numbers.start,
            "forced": numbers.forced,
            "tied": numbers.shared,
            "encoder": {**one, "stack": below},
            "decoder": {
                **one,
                "position": positions[1],
                "pattern": {"_target_": "plmctl.attention.patterns.causal.Causal"},
                "stack": above,
            },
            "initializer": {"_partial_": True, **initializer},
            "classifier": {"pooling": "last", "pooler": False, "dense": True, "bias": True},
        },
    }


class EncoderDecoderFamily(Family):
    """Two stacks. Published files have one table of tokens, or where `config.json` unties them one
    for each use.

    `final_logits_bias` is the bias of our head, which has none if it is all 0.
    """

    ties: Mapping[str, str] = {}  # `adapt` and `complete` handle them
    # first token of the decoder, if a file names none, or its role; None: padding
    first_token: int | str | None = None

    def numbers(self, settings: Config) -> Numbers:
        """The numbers of both stacks; `num_layers`, `num_heads` and `inner_width` are those of the
        encoder, `start` is the first token of the decoder, an id or the role of a token.
        """
        numbers = super().numbers(settings)
        default = numbers.pad if self.first_token is None else self.first_token
        start = default if numbers.start is None else numbers.start
        return numbers.but(start=start, shared=True, bias=False)

    def settings(self, numbers: Numbers) -> Node:
        # sinusoids have no longest row
        length = numbers.max_length or getattr(numbers, "longest", LONGEST)
        settings = super().settings(numbers.but(tied=self.one_table(numbers), max_length=length))
        unstated = {FORCED.key} if numbers.forced is None else ()
        return {key: value for key, value in settings.items() if key not in unstated}

    def measure(self, config: Config, tensors: Weights, pad: int) -> Numbers:
        model = config["model"]
        ends = [model.get(name) or {} for name in ("encoder", "decoder")]
        below = super().measure({**config, "model": ends[0]}, tensors, pad)
        above = super().measure({**config, "model": ends[1]}, tensors, pad)
        head = (config.get("heads") or {}).get(HEAD) or {}
        inner = ((ends[0].get("stack") or {}).get("cells") or {}).get("f") or {}
        return below.but(
            decoder_layers=count_layers((ends[1].get("stack") or {}).get("layout", ""), "acf"),
            decoder_heads=above.num_heads,
            decoder_inner_width=above.inner_width,
            start=model.get("start", pad),
            forced=model.get("forced"),
            shared=model.get("tied", True),
            bias=head.get("bias", False),
            head_width=_head_width(ends[0], below),
            scaled=(ends[0].get("embedding") or {}).get("scaled", False),
            inner_dropout=inner.get("dropout", 0.0),
            longest=(config.get("origin") or {}).get("longest", LONGEST),
        )

    def remember(self, numbers: Numbers) -> Node:
        """The longest row, where no part of ours has one."""
        parts = self.nodes(numbers)["position"]
        stated = numbers.max_length and "max_length" not in parts
        return {"longest": numbers.max_length} if stated else {}

    def find_differences(self, config: Config, numbers: Numbers) -> list[str]:
        return super().find_differences(
            {**config, "model": normalize_ends(config["model"], numbers.width)}, numbers
        )

    def head(self, name: str, numbers: Numbers, outputs: int) -> Node:
        if name != HEAD:
            return task_head(name, numbers, outputs) | (
                {"dense": True} if name in ("class", "score") else {}
            )
        return lm_head(numbers, bias=numbers.bias, scaled=False, about="next")

    def find_absent(
        self, tensors: Weights, rules: Sequence[NameRule], numbers: Numbers
    ) -> list[str]:
        above = [rule for rule in rules if rule.ours.startswith("backbone.decoder.stack.")]
        below = [rule for rule in rules if rule not in above]
        absent = find_missing(tensors, below, num_layers=numbers.num_layers)
        return absent + find_missing(tensors, above, num_layers=numbers.decoder_layers)

    def adapt(self, numbers: Numbers, tensors: Tensors) -> tuple[Numbers, Tensors]:
        """Give equal tables one name, whatever aliases the file has: `shared`, that of the decoder,
        or that of the output; and remove the sinusoids that files of some families contain.
        """
        prefix = self.prefix if any(name.startswith(self.prefix) for name in tensors) else ""
        read = {prefix + part for rule in self.backbone(numbers) for part in rule.theirs}
        waves = {
            name: tensor
            for name, tensor in tensors.items()
            if name not in read and name.endswith("embed_positions.weight")
        }
        if waves:
            how = self.nodes(numbers)["position"]
            warn_of_other_waves(waves, **{key: how[key] for key in how if key != "_target_"})
        tensors = {name: tensor for name, tensor in tensors.items() if name not in waves}
        shared, encoder, decoder = (prefix + name for name in (SHARED, ENCODER, DECODER))
        biased = BIAS in tensors and bool(tensors[BIAS].count_nonzero())
        numbers = numbers.but(bias=biased)
        aliases = (shared, encoder, decoder, OUTPUT, *([] if biased else [BIAS]))
        rest = {name: tensor for name, tensor in tensors.items() if name not in aliases}
        known = {
            name: tensors[name] for name in (shared, encoder, decoder, OUTPUT) if name in tensors
        }
        if not known:
            return numbers, rest
        table = known.get(shared, next(iter(known.values())))
        if self.one_table(numbers):
            return numbers.but(tied=True, shared=True), rest | {shared: table}
        below = known.get(encoder, table)
        above = known.get(decoder, below)
        output = known.get(OUTPUT, above)
        adapted = numbers.but(tied=output.equal(above), shared=above.equal(below))
        own = ({} if adapted.shared else {decoder: above}) | (
            {} if adapted.tied else {OUTPUT: output}
        )
        return adapted, rest | {shared: below} | own

    def complete(self, tensors: Tensors, numbers: Numbers, architecture: Architecture) -> Tensors:
        prefix = "" if architecture.bare else self.prefix
        below = tensors[prefix + SHARED]
        if any(BIAS in rule.theirs for rule in architecture.rules):
            tensors = {BIAS: below.new_zeros(1, numbers.vocab_size)} | tensors
        if self.one_table(numbers):
            return tensors
        above = tensors.get(prefix + DECODER, below)
        tables = {prefix + ENCODER: below.clone(), prefix + DECODER: above.clone()}
        return tables | ({OUTPUT: above.clone()} if HEAD in architecture.heads else {}) | tensors

    def one_table(self, numbers: Numbers) -> bool:
        """Whether files of this member have one table for everything."""
        return bool(numbers.shared and numbers.tied)


def _head_width(end: Mapping[str, Any], numbers: Numbers) -> int | None:
    """The width of an encoder's heads; None if all together are as wide as the model."""
    attention = ((end.get("stack") or {}).get("cells") or {}).get("a") or {}
    return unusual_width(attention.get("head_width"), numbers)


def unusual_width(head_width: int | None, numbers: Numbers) -> int | None:
    """The width of heads; None if all together are as wide as the model."""
    usual = head_width is None or head_width * numbers.num_heads == numbers.width
    return None if usual else head_width


def normalize_ends(model: Mapping[str, Any], width: int) -> Node:
    """`model` whose stacks list only cells of their layout, and only unusual widths of heads."""
    normalized = dict(model)
    for end in ("encoder", "decoder"):
        own = dict(model.get(end) or {})
        layers = own.get("stack") or {}
        letters = layers.get("layout", "").partition("*")[0]
        cells = {
            letter: dict(cell or {})
            for letter, cell in (layers.get("cells") or {}).items()
            if letter in letters
        }
        for cell in cells.values():
            if (cell.get("head_width") or 0) * cell.get("num_heads", 0) == width:
                cell["head_width"] = None
        if cells:
            normalized[end] = {**own, "stack": {**layers, "cells": cells}}
    return normalized
