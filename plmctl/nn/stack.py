"""Runs a layout of blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from plmctl.core.errors import ConfigError
from plmctl.core.graphs import outside_graphs
from plmctl.core.parts import base_of, part_of
from plmctl.nn import layout as grammar
from plmctl.nn.added_cells import Adds, add_cells
from plmctl.nn.by_layer import ByLayer, Factory, build_cells
from plmctl.nn.cells.base import Cell
from plmctl.nn.columns import describe_rounds, find_columns
from plmctl.nn.env import Env, Streams
from plmctl.nn.halting import Halting
from plmctl.nn.layer_weights import LayerWeights
from plmctl.nn.layout import Step
from plmctl.nn.norm import norm_tokens
from plmctl.nn.residual import BareBlock, Block
from plmctl.nn.restrained import find_restrained
from plmctl.nn.reversible import Join, ReversiblePair

Round = list[tuple[int, Step]]  # cells in parallel: (number of the step, step)
Layer = Callable[[Streams, Env], Streams]


@base_of("residual")
class Residual(Protocol):
    """Makes blocks of cells, and the final norm: `PostNorm`, `PreNorm`, `SandwichNorm`."""

    def block(self, cell: Cell) -> Block:
        """A block around `cell`."""

    def final(self, *, width: int | None = None) -> nn.Module:
        """The norm after the stack, of `width` columns if they are not those of the stream."""


@part_of("stack")
class Stack(nn.Module):
    """`final_norm(block_n(... block_1(x)))`, streams to streams, in the order of `layout`
    (grammar: nn/layout.py).

    Parameters are named by letter and ordinal: `blocks.a.0`, `blocks.f.0`.

    Args:
        layout: The layout: which cells run in which order.
        cells: {letter of the layout: factory of the cell}.
        residual: The position of the norms.
        share: {letter: number of copies}, each for as many neighbours.
        by_layer: {letter: {setting of the cell: one value for each of its copies}}, such as
            `{f: {inner_width: [64, 64, 128]}}` for `af*3`.
        adds: Cells that a system adds to the layers of the layout (nn/added_cells.py), with
            settings of the `last` copy: `{k: {after: f, layers: [0.75, 0.84]}}`.
        sandwich: k; a layout `af*n` runs as `a*k af*(n-k) f*k`.
        columns: {letter: [from, to]}, shares of the stream's columns, which are all that this cell
            reads and writes. Cells in parallel that divide the columns are long-short range
            attention (Wu et al., 2020, arXiv:2004.11886, sec. 4): `a|wf*6` with `{a: [0, 0.5], w:
            [0.5, 1]}`.
        width: W, which the columns are shares of.
        reversible: Two streams, which the cells read and change in turn (nn/reversible.py).
        join: The result of the two streams at the end (Kitaev et al., 2020, arXiv:2001.04451,
            released): their "mean", W wide, or "concatenate", 2 W wide. One norm covers all of it.
        halting: Every token decides after how many layers its state is final; None: after all.
        weighted: Makes the weights with which each layer reads the results of all before it
            (nn/layer_weights.py); None: each reads the layer before it.
    """

    # store only the input of each layer for the backward pass, and run the layer again there
    checkpointed = False
    narrow = False  # the sums have autocast's type (nn/narrow.py)

    def __init__(
        self,
        *,
        layout: str,
        cells: Mapping[str, Factory],
        residual: Residual,
        share: Mapping[str, int] | None = None,
        by_layer: ByLayer = MappingProxyType({}),
        adds: Adds | None = None,
        reversible: bool = False,
        sandwich: int = 0,
        columns: Mapping[str, Sequence[float]] = MappingProxyType({}),
        width: int = 0,
        join: Join = "mean",
        halting: Halting | None = None,
        weighted: Callable[..., LayerWeights] | None = None,
    ) -> None:
        super().__init__()
        layout = grammar.make_sandwich(layout, sandwich)
        extended = add_cells(grammar.parse(layout, share=share), adds or {})
        self.steps, self.origins = extended.steps, extended.origins
        # for each layer, the cells that run together
        self.rounds = [grammar.split_rounds(layer) for layer in grammar.split_layers(self.steps)]
        self.reversible, self.join, self.adds = reversible, join, adds or {}
        if join == "concatenate" and not reversible:
            fix = "model.stack.reversible=true, or model.stack.join=mean"
            raise ConfigError("model.stack.join", join, "mean: there is one stream", fix=fix)
        copies = grammar.count_copies(self.steps)
        _check_letters(layout, copies, cells)
        own = find_columns(columns, copies, width)
        built = build_cells(
            cells,
            copies,
            by_layer,
            widths={name: part.stop - part.start for name, part in own.items()},
            last={name: node["last"] for name, node in self.adds.items() if node.get("last")},
        )
        self.blocks = nn.ModuleDict(
            {key: nn.ModuleList(_surround(residual, x) for x in xs) for key, xs in built.items()}
        )
        for letter, part in own.items():
            for block in self.blocks[letter]:  # type: ignore[attr-defined, union-attr]
                _narrow(block, part, letter)
        for letter, parts in built.items():
            fits = own[letter].stop - own[letter].start if letter in own else width
            _check_outputs(letter, parts[0], fits)
        for steps in [steps for layer in self.rounds for steps in layer]:
            self._check_round([self.block(step).cell for _, step in steps], layout)
            for _, step in steps[1:]:
                self.block(step).join()
        if not getattr(residual, "first_norm", True):
            self.block(self.steps[0]).norm_in = nn.Identity()
        together = ([step.letter for _, step in steps] for layer in self.rounds for steps in layer)
        self.columns_remark = describe_rounds(own, together, width)  # for the user, or ""
        self.halting = halting
        self.weighted = weighted(num_layers=self.num_layers) if weighted else None
        self._check_order(residual)
        joined = {} if join == "mean" else {"width": 2 * (width or self._count_projected())}
        self.final_norm = residual.final(**joined)

    def _count_projected(self) -> int:
        """The width of the stream, where no setting names it."""
        return self.block(self.steps[0]).cell.columns()

    def _check_round(self, cells: Sequence[Cell], layout: str) -> None:
        written = {cell.facts.writes for cell in cells}
        if len(cells) > 1:
            written = written.union(*(cell.facts.also_writes for cell in cells))
        if len(written) > 1:
            allowed = f"cells in parallel write one stream, these write {', '.join(written)}"
            raise ConfigError("model.stack.layout", layout, allowed)
        written = written.union(*(cell.facts.also_writes for cell in cells))
        if self.reversible and written != {"text"}:
            allowed = f"false: the layout {layout} has a cell that writes {', '.join(written)}"
            raise ConfigError("model.stack.reversible", True, allowed)

    def _check_order(self, residual: Residual) -> None:
        """Raise ConfigError for cells or norms with which layers run in the plain order alone."""
        if self.reversible:
            self._check_reversible(residual)
        if self.halting is not None:
            self._check_halting()
        if self.weighted is not None:
            self._check_weighted(residual)

    def _check_reversible(self, residual: Residual) -> None:
        for step in self.steps:
            block = self.block(step)
            if not (block.sums and isinstance(block.norm_sum, nn.Identity)):
                why = "no norm after a sum, which cannot be inverted, as in"
                why = why if block.sums else "residual sums, which can be inverted, unlike"
                part = block.cell if block.cell.facts.complete else residual
                allowed = f"{why} {type(part).__name__}"
                fix = "model.stack.residual._target_=plmctl.nn.residual.PreNorm"
                raise ConfigError("model.stack.reversible", True, allowed, fix=fix)

    def _check_halting(self) -> None:
        cells = [self.block(step).cell for step in self.steps]
        written = {
            stream for cell in cells for stream in (cell.facts.writes, *cell.facts.also_writes)
        }
        if self.reversible or written != {"text"}:
            allowed = (
                "null: a reversible stack has two streams, and a token only one result"
                if self.reversible
                else f"null: the layout has a cell that writes {', '.join(sorted(written))}"
            )
            fix = "model.stack.reversible=false" if self.reversible else "model.stack.halting=null"
            raise ConfigError("model.stack.halting", ..., allowed, fix=fix)

    def _check_weighted(self, residual: Residual) -> None:
        path = "model.stack.weighted"
        if self.reversible or self.halting is not None:
            allowed = "null with model.stack.reversible or model.stack.halting"
            raise ConfigError(path, ..., allowed, fix=f"{path}=null")
        blocks = [self.block(step) for step in self.steps]
        if not all(block.sums and isinstance(block.norm_sum, nn.Identity) for block in blocks):
            allowed = f"null, or sums without a norm behind them, unlike {type(residual).__name__}"
            fix = "model.stack.residual._target_=plmctl.nn.residual.PreNorm"
            raise ConfigError(path, ..., allowed, fix=fix)

    @property
    def num_layers(self) -> int:
        """The number of layers."""
        return len(self.rounds)

    @property
    def widening(self) -> int:
        """How many times as wide its result is as its input."""
        return 2 if self.join == "concatenate" else 1

    @property
    def recomputes(self) -> bool:
        """Whether a backward pass runs the forward pass of each cell again."""
        return self.checkpointed or self.reversible

    @property
    def records(self) -> bool:
        """Whether each layer has exactly one cell of self-attention that can be recorded, and is
        run.
        """
        if self.halting is not None:
            return False
        recorded = [
            sum(self.block(step).cell.facts.records for steps in layer for _, step in steps)
            for layer in self.rounds
        ]
        return set(recorded) == {1}

    @property
    def narrows(self) -> bool:
        """Whether the last layer can compute some tokens alone: its cells read each token for
        itself, or the other tokens from the stream `content`.
        """
        if self.halting is not None or self.reversible:
            return False
        facts = [self.block(step).cell.facts for steps in self.rounds[-1] for _, step in steps]
        return all(
            not own.whole and ("content" in own.reads or own.computes == "feed-forward")
            for own in facts
        )

    @property
    def hashes(self) -> bool:
        """Whether a cell sorts tokens into buckets."""
        return any(self.block(step).cell.facts.hashes for step in self.steps)

    def list_layers(self) -> list[list[nn.Module]]:
        """The blocks of each layer."""
        return [[self.block(step) for steps in layer for _, step in steps] for layer in self.rounds]

    def block(self, step: Step) -> Block:
        """The block that a step runs."""
        if torch.compiler.is_compiling():
            return self.blocks[step.letter][step.copy]  # type: ignore[index, return-value]
        # the same without the checks of torch, which a step of one token notices
        found: Any = self._modules["blocks"]
        block: Block = found._modules[step.letter]._modules[str(step.copy)]
        return block

    def forward(
        self,
        streams: Streams,
        env: Env,
        *,
        record: bool = False,
        first: int = 0,
        end: int | None = None,
    ) -> tuple[Streams, list[Tensor]]:
        """The streams after the last layer, the text normed; and with `record` the text before the
        first layer and after every one (the last one normed). Where tokens halt, what is recorded
        is their result so far, and the streams have `ponder`.

        Args:
            first: The number of the layer that reads `streams`; those before it do not run.
            end: The number of the first layer that does not run; the text is then not normed. None:
                all run. Neither fits a stack whose tokens halt, or a reversible one.
        """
        run: Callable[..., tuple[Streams, list[Tensor]]] = self._run_in_order
        if self.narrow:
            streams = streams.replace("text", self.lower(streams["text"]))
        if first or end is not None:
            run = partial(run, first=first, end=end)
        if self.halting is not None:
            run = self._run_until_halted
        elif self.reversible:
            run = self._run_reversible
        elif self.weighted is not None:
            run = self._run_weighted
        streams, recorded = run(streams, env, record)
        if end is not None:
            return streams, recorded if record else []
        streams = streams.replace("text", norm_tokens(self.final_norm, streams["text"], env.real))
        return streams, [*recorded[:-1], streams["text"]] if record else []

    def lower(self, x: Tensor) -> Tensor:
        """`x` in the type of the sums: autocast's where these are `narrow`."""
        if self.narrow and torch.is_autocast_enabled(place := x.device.type):
            return x.to(torch.get_autocast_dtype(place))
        return x

    def _run_in_order(
        self, streams: Streams, env: Env, record: bool, first: int = 0, end: int | None = None
    ) -> tuple[Streams, list[Tensor]]:
        recorded = [streams["text"]]
        for number in range(first, self.num_layers if end is None else end):
            streams = self.layer(number, streams, env)
            if record:
                recorded.append(streams["text"])
        return streams, recorded

    def _run_weighted(
        self, streams: Streams, env: Env, record: bool
    ) -> tuple[Streams, list[Tensor]]:
        assert self.weighted is not None
        results, recorded = [streams["text"]], [streams["text"]]
        for number in range(self.num_layers):
            x = self.weighted.mix(number, results)
            streams = self.layer(number, streams.replace("text", x), env)
            results.append(self.weighted.result(x, streams["text"]))
            if record:
                recorded.append(streams["text"])
        last = self.weighted.mix(len(results) - 1, results) if self.weighted.output else results[-1]
        return streams.replace("text", last), recorded

    @outside_graphs  # how many layers run depends on values
    def _run_until_halted(
        self, streams: Streams, env: Env, record: bool
    ) -> tuple[Streams, list[Tensor]]:
        assert self.halting is not None
        x = streams["text"]
        real = env.real
        recorded, pondering = [x], self.halting.begin(x)
        for number in range(self.num_layers):
            streams = self._enter(number, streams, env)
            before = streams["text"]
            streams = self._run_layer(number, streams, env)
            pondering = self.halting.step(pondering, before, streams["text"])
            if record:
                recorded.append(pondering.state.to(x.dtype))
            # later tokens attend to all layers of those in a cache
            if env.cache is None and not self.halting.goes_on(pondering, real):
                break
        if record:  # nothing changes in layers that no token needs
            recorded += recorded[-1:] * (self.num_layers + 1 - len(recorded))
        ponder = torch.stack([pondering.steps, pondering.remainder], -1)
        return streams.replace("text", pondering.state.to(x.dtype)).replace(
            "ponder", ponder if real is None else ponder * real[..., None]
        ), recorded

    def layer(self, number: int, streams: Streams, env: Env) -> Streams:
        """The streams after one layer, from those before it."""
        return self._run_layer(number, self._enter(number, streams, env), env)

    def _run_layer(self, number: int, streams: Streams, env: Env) -> Streams:
        """The streams after one layer, from the input of its first cell."""
        # a recorder must see each layer only once
        if self.checkpointed and torch.is_grad_enabled() and env.recorder is None:
            return _run_checkpointed(partial(self._run_rounds, number), streams, env)
        return self._run_rounds(number, streams, env)

    def _run_rounds(self, number: int, streams: Streams, env: Env) -> Streams:
        for steps in self.rounds[number]:
            first, read = self._read(steps, streams, env)
            name = first.cell.facts.writes
            x = streams[name]
            for number_of_step, step in steps:
                block, here = self.block(step), env.at(number_of_step, number)
                read = block.cell.prepare(read, here)
                x = block.add(x, read, here)
                for other in block.cell.facts.also_writes:
                    streams = streams.replace(other, read[other])
            streams = streams.replace(name, first.end(x, env))
        return streams

    def _enter(self, number: int, streams: Streams, env: Env) -> Streams:
        """The input of the first cell of a layer: with the layer's own streams, and its number if
        the positions add it.
        """
        op = env.ops["text"]
        x = op.position.every_step(streams["text"], number, op.positions)
        return streams.at(number).replace("text", x)

    def _read(self, steps: Round, streams: Streams, env: Env) -> tuple[Block, Streams]:
        """(the block with the norms, the input of all cells of the round)."""
        first = self.block(steps[0][1])
        reads = first.cell.facts.reads
        if len(steps) > 1:
            reads = reads.union(*(self.block(step).cell.facts.reads for _, step in steps[1:]))
        return first, first.normalize(streams, reads, env)

    @outside_graphs  # a compiled graph cannot hold what a step keeps for the backward pass
    def _run_reversible(
        self, streams: Streams, env: Env, record: bool
    ) -> tuple[Streams, list[Tensor]]:
        x = streams["text"]
        pair = ReversiblePair(x, stored=env.recorder is not None, join=self.join)
        recorded = [pair.joined()] if record else []
        env = replace(env, remembered={})
        others = Streams(
            {k: v for k, v in streams.tensors.items() if k != "text"}, streams.by_layer
        )
        for number in range(self.num_layers):
            for steps in self.rounds[number]:
                pair.step(partial(self._change, number, steps, others, env))
            if record:
                recorded.append(pair.joined())
        return others.replace("text", pair.finish()), recorded

    def _change(self, number: int, steps: Round, others: Streams, env: Env, x: Tensor) -> Tensor:
        """The sum of the outputs of a round's cells for the stream `x` and the others."""
        streams = others.replace("text", x)
        if steps is self.rounds[number][0]:
            streams = self._enter(number, streams, env)
        else:
            streams = streams.at(number)
        _, read = self._read(steps, streams, env)
        changes = [
            self.block(step).change(read, env.at(number_of_step, number))
            for number_of_step, step in steps
        ]
        return torch.stack(changes).sum(0) if len(changes) > 1 else changes[0]


def _surround(residual: Residual, cell: Cell) -> Block:
    """A block around a cell, bare where the cell has norms and sums inside."""
    return BareBlock(cell=cell) if cell.facts.complete else residual.block(cell)


def _check_letters(layout: str, letters: Iterable[str], cells: Mapping[str, Factory]) -> None:
    """Raise ConfigError for a letter of a layout that names no cell."""
    for letter in letters:
        if letter not in cells:
            allowed = f"'{letter}' is none of the cells: {', '.join(cells)}"
            raise ConfigError("model.stack.layout", layout, allowed)


def _check_outputs(letter: str, cell: Cell, width: int) -> None:
    """Raise ConfigError for a cell whose result has other columns than the stream."""
    if width and cell.facts.outputs not in (None, width):
        allowed = f"null, or {width}: the result is added to the stream"
        raise ConfigError(f"model.stack.cells.{letter}.outputs", cell.facts.outputs, allowed)


def _narrow(block: Block, columns: slice, letter: str) -> None:
    """Let a block read and write these columns alone; ConfigError if its cell reads more."""
    if block.cell.facts.reads - {"content"} != {"text"} or block.cell.facts.writes != "text":
        allowed = f"cells that read the text alone, and '{letter}' is {type(block.cell).__name__}"
        raise ConfigError(f"model.stack.columns.{letter}", [columns.start, columns.stop], allowed)
    block.narrow(columns)


@outside_graphs  # a compiled graph cannot reset the generators of the CPU
def _run_checkpointed(layer: Layer, streams: Streams, env: Env) -> Streams:
    """Run a layer without stored activations (Chen et al., 2016, arXiv:1604.06174, sec. 4)."""

    def run(x: Tensor) -> Streams:  # the tensor names the device of the generator
        return layer(streams.replace("text", x), env)

    after: Streams = checkpoint(run, streams["text"], use_reentrant=False)
    return after


def checkpoint_stacks(model: nn.Module, objective: nn.Module) -> None:
    """Let every stack store only the inputs of its layers; ConfigError if the model has none."""
    if not any(isinstance(part, Stack) for part in model.modules()):
        allowed = "false: this model has no stack of layers that could run again"
        raise ConfigError("train.checkpoint_activations", True, allowed)
    for part in [*model.modules(), *objective.modules()]:
        if isinstance(part, Stack):
            part.checkpointed = True


def find_units(*modules: nn.Module) -> dict[nn.Module, list[str]]:
    """{cell: its methods besides `forward` that read its weights}: cells that run in the forward
    pass of every row, one after the other, each once.

    A stack has none if a batch decides the number of its layers, or if it computes its input again.
    Cells whose weights have a penalty are not among them. None where a part `holds_cells`.
    """
    parts = [part for module in modules for part in module.modules()]
    if any(getattr(part, "holds_cells", False) for part in parts):
        return {}
    cells: dict[Cell, None] = {}
    for stack in parts:
        if isinstance(stack, Stack) and stack.halting is None and not stack.reversible:
            cells |= {stack.block(step).cell: None for step in stack.steps}
    return {
        cell: ["prepare"] if type(cell).prepare is not Cell.prepare else []
        for cell in cells
        if not find_restrained(cell)
    }
