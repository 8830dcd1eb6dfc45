"""A model of short rows made to read long ones (Beltagy et al., 2020, arXiv:2004.05150, sec. 5 and
7). Its learned positions are copied again and again. It attends by a window with global tokens, and
these have copies of its projections. Positions without a last one stay as they are. An
encoder-decoder gets a long encoder; the decoder stays as it is, and sees all of the source.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from plmctl.artifacts.places import Places
from plmctl.attention.patterns.base import Full
from plmctl.config.build import class_of
from plmctl.core.errors import ConfigError
from plmctl.interop.longformer import CELL, read_pattern, window_pattern
from plmctl.models.encoder import Encoder
from plmctl.models.encoder_decoder import EncoderDecoder
from plmctl.nn.cells.attention import Attention
from plmctl.nn.cells.global_attention import GlobalAttention
from plmctl.nn.layout import parse
from plmctl.nn.positions import Learned

if TYPE_CHECKING:
    from plmctl.artifacts.loading import Source

TABLE = "backbone.position.table.weight"
REACH = 256  # default number of tokens to either side: the paper's window of 512


def lengthen(
    source: Source, max_length: int, *, reach: int | None = None, without: Sequence[str] = ()
) -> Source:
    """`source` for rows of up to `max_length` tokens.

    Args:
        reach: Tokens that a token sees to either side. Where the window covers a row of the old
            length, the states are what they were. None: an old row, at most `REACH`; of a
            model that has a window already, its own.

    Raises:
        ConfigError: Its positions end and are not learned in one table; it has another kind of
            attention, or reads rows as long already; a window wider than the rows.
    """
    config, tensors = copy.deepcopy(source.config), dict(source.tensors)
    reader = _Reader.of(source, config)
    # None: its positions have no last one
    table = tensors[reader.table] if reader.learned else None
    known = _old_length(config) if table is None else len(table)
    if reach is not None and reach < 1:
        raise ConfigError("--reach", reach, "1 or more", fix=f"--reach {min(REACH, known)}")
    if max_length <= known:
        what = "positions that" if reader.learned else "tokens of the rows that"
        allowed = f"more than {known}, the {what} {source.folder} has learned"
        raise ConfigError("--max-length", max_length, allowed, fix=f"--max-length {8 * known}")
    stack = reader.node["stack"]
    letters = list(_attention_letters(source, stack))
    if not letters:
        raise ConfigError(reader.path, stack["layout"], "at least one cell of Attention")
    layers = sum(step.ends for step in parse(stack["layout"]))
    reaches, tokens = read_pattern(config["pattern"], layers) or ((min(REACH, known),) * layers, 1)
    reaches = reaches if reach is None else (reach,) * layers
    if reader.end and reader.learned:
        above = config["model"]["decoder"]
        above["position"] = {**above["position"], "max_length": Places.of(source.config).written}
    config["pattern"] = window_pattern(reaches, tokens)
    if table is not None:
        config["position"]["max_length"] = max_length
        tensors[reader.table] = _repeat(table, max_length, drawn="copies" in without)
    elif "copies" in without:
        allowed = f"a model with learned positions; {source.folder} has none to copy"
        raise ConfigError("--without", "copies", allowed, fix="no --without copies")
    # no other part may share the nodes that change
    stack["cells"] = cells = dict(stack["cells"])
    for letter in letters if "projections" not in without else ():
        if class_of(cells[letter], source.plugins) is Attention:
            cells[letter] = _make_global(cells[letter], path=f"{reader.path}.cells.{letter}")
            tensors |= _copy_projections(tensors, f"backbone.{reader.end}stack.blocks.{letter}")
    _check_windows(reaches, max_length, reader)
    return replace(source, config=config, tensors=tensors)


class _Reader:
    """The encoder inside a model that is made long."""

    def __init__(self, end: str, node: dict[str, Any], *, learned: bool) -> None:
        self.learned = learned  # it has a table of positions
        self.end, self.node = end, node  # "encoder." in the names of an encoder-decoder
        self.path, self.table = f"model.{end}stack", f"backbone.{end}position.table.weight"

    @classmethod
    def of(cls, source: Source, config: dict[str, Any]) -> _Reader:
        """The one of `config`; ConfigError for a model that is made long otherwise, or needs not
        be.
        """
        model, position, pattern = (
            class_of(config[name], source.plugins) for name in ("model", "position", "pattern")
        )
        long = read_pattern(config["pattern"], 1) is not None
        if model not in (Encoder, EncoderDecoder) or not (pattern is Full or long):
            kind = f"{model.__name__} with the pattern {pattern.__name__}"
            allowed = (
                "an Encoder or EncoderDecoder with the pattern Full or Longformer's, such as BERT,"
                " RoBERTa, ALBERT, ELECTRA, modern_encoder, BART and T5: only these are made long"
            )
            fix = f"plmctl help pattern, of which {source.folder} has its own for long rows"
            raise ConfigError("model", kind, allowed, fix=f"{fix}; or another model")
        if position is not Learned and config["position"].get("max_length") is not None:
            allowed = "learned positions in one table, or positions without a last one"
            raise ConfigError("position", position.__name__, allowed)
        if model is Encoder:
            return cls("", config["model"], learned=position is Learned)
        if config["model"].get("front"):
            allowed = "null: the encoder reads the states of another one, which has its own length"
            raise ConfigError("model.front", ..., allowed)
        config["model"]["encoder"] = node = dict(config["model"]["encoder"])
        node["stack"] = dict(node["stack"])
        return cls("encoder.", node, learned=position is Learned)


def _old_length(config: Mapping[str, Any]) -> int:
    """The length of the rows that a model was trained on, where its positions do not state it."""
    settings = config.get("task") or config.get("format") or {}
    return settings.get("max_length") or 2 * REACH


def _repeat(table: Tensor, length: int, *, drawn: bool) -> Tensor:
    """[length, W] the rows of `table` again and again; `drawn`: N(0, 0.02^2) behind the last."""
    known = len(table)
    made = table[torch.arange(length) % known]
    if drawn:
        made[known:].normal_(std=0.02, generator=torch.Generator().manual_seed(0))
    return made


def _check_windows(reaches: tuple[int, ...], max_length: int, reader: _Reader) -> None:
    """ConfigError for windows that leave nothing out, or that published rows do not fill."""
    widest = max(reaches)
    if widest >= max_length - 1:
        allowed = f"less than {max_length - 1}: rows have {max_length} tokens, and all see all"
        fix = f"--reach {max(1, max_length // 8)}, or a larger --max-length"
        raise ConfigError("--reach", widest, allowed, fix=fix)
    if (
        reader.end and reader.learned and max_length % (2 * widest)
    ):  # transformers pads to it, by learned positions
        window = 2 * widest
        allowed = f"a multiple of {window}, the window of both sides, to which LED fills up rows"
        fix = f"--max-length {-(-max_length // window) * window}"
        raise ConfigError("--max-length", max_length, allowed, fix=fix)


def _attention_letters(source: Source, stack: Mapping[str, Any]) -> Iterator[str]:
    """The letters of the layout whose cells are `Attention`, or have global tokens already."""
    for letter in dict.fromkeys(step.letter for step in parse(stack["layout"])):
        cell = class_of(stack["cells"][letter], source.plugins)
        if cell in (Attention, GlobalAttention):
            yield letter


def _make_global(node: Mapping[str, Any], *, path: str) -> dict[str, Any]:
    """The node of an attention cell with projections of their own for global tokens."""
    projections = node.get("projections", "own")
    if projections != "own":
        allowed = "own: only such a cell has projections to copy for global tokens"
        raise ConfigError(f"{path}.projections", projections, allowed)
    kept = {name: value for name, value in node.items() if name != "projections"}
    return {**kept, "_target_": CELL}


def _copy_projections(tensors: Mapping[str, Tensor], blocks: str) -> dict[str, Tensor]:
    """The tensors of `global_maps` in all cells of these blocks."""
    made: dict[str, Tensor] = {}
    name_of = re.compile(rf"({re.escape(blocks)}\.\d+\.cell)\.qkv\.(weight|bias)")
    for name, tensor in tensors.items():
        if match := name_of.fullmatch(name):
            cell, part = match.groups()
            q, kv = tensor.split([len(tensor) // 3, len(tensor) - len(tensor) // 3])
            made |= {
                f"{cell}.global_maps.q.{part}": q.clone(),
                f"{cell}.global_maps.kv.{part}": kv.clone(),
            }
    return made
