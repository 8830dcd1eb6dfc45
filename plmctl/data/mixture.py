"""Several corpora as one stream of rows: the corpus of each row is drawn by the shares."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from plmctl.core.draws import Draws
from plmctl.core.errors import ConfigError, nearest
from plmctl.core.values import Whole, fit
from plmctl.data.formats.base import Format
from plmctl.data.reader import (
    EARLIER,
    CorpusPicks,
    Picks,
    ReadPosition,
    RowReader,
    check_stage,
    choose_rows_of_rank,
    stage_of,
)

KEYS = ("path", "target_path", "language", "weight")  # keys of a corpus in `data.mixture`


class MixturePosition(NamedTuple):
    """How far a mixture has read: `row` rows in all, and the position in each corpus."""

    row: int
    corpora: tuple[ReadPosition, ...]


class Mixture:
    """A reader over readers: row k of the run comes from the corpus that (seed, stage, k) draws,
    with probability `share`.

    Each corpus is read in its own order, every row once in its own epoch; then its next epoch
    begins. So ranks, batch size and the point of a resume do not change the rows. The state is one
    number for the mixture and two for each corpus. An epoch of the mixture has as many rows as all
    corpora together.
    """

    def __init__(
        self,
        corpora: Mapping[str, RowReader],
        shares: Mapping[str, float],
        *,
        seed: int,
        batch_size: int,
        world: int = 1,
        rank: int = 0,
        stage: int = 0,
    ) -> None:
        self.readers, self.seed, self.stage = dict(corpora), seed, stage
        self.batch_size, self.world, self.rank = batch_size, world, rank
        self.shares = {name: shares[name] for name in self.readers}
        self.format: Format = next(iter(self.readers.values())).format
        if self.format.ordered:
            allowed = "a format that continues its rows from batch to batch reads one corpus"
            fix = "data.path=[A,B] for texts that are read one after the other, or another format"
            raise ConfigError("data.mixture", list(self.readers), allowed, fix=fix)
        self.position = self._start()

    def _start(self) -> MixturePosition:
        return MixturePosition(0, (ReadPosition(),) * len(self.readers))

    @property
    def fingerprint(self) -> str:
        """A hash of the corpora, their names and their shares."""
        text = repr(
            [
                (name, self.shares[name], reader.seed, reader.fingerprint)
                for name, reader in self.readers.items()
            ]
        )
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def corpus(self, row: np.ndarray) -> np.ndarray:
        """[n]: the number of the corpus that each of the rows `row [n]` of the run comes from."""
        edges = np.cumsum(list(self.shares.values()))
        drawn = (
            Draws(self.seed, 0, ("stage", self.stage)).words(row, "corpus", 1)[:, 0]
            * 2.0**-64
            * edges[-1]
        )
        return np.minimum(np.searchsorted(edges, drawn, side="right"), len(edges) - 1)

    def take(self, position: MixturePosition) -> tuple[Picks, MixturePosition]:
        """This rank's share of the global batch at `position`, and the position after it."""
        corpus = self.corpus(position.row + np.arange(self.batch_size))
        epoch, index = np.empty((2, self.batch_size), np.int64)
        after = list(position.corpora)
        for number, reader in enumerate(self.readers.values()):
            mine = np.flatnonzero(corpus == number)
            picks, after[number] = reader.following(after[number], len(mine))
            epoch[mine], index[mine] = picks.epoch, picks.index
        share = choose_rows_of_rank(self.batch_size, self.world, self.rank)
        return Picks(epoch, index, corpus).select(share), MixturePosition(
            position.row + self.batch_size, tuple(after)
        )

    def parts(self, picks: Picks) -> Iterator[CorpusPicks]:
        """The picked rows, one part for each corpus and epoch."""
        for number, reader in enumerate(self.readers.values()):
            mine = np.flatnonzero(picks.corpus == number)
            for part in reader.parts(picks.select(mine)):
                yield part._replace(place=mine[part.place])

    def corpora(self, name: str) -> dict[str, tuple[RowReader, float]]:
        """{corpus: (its reader, its share of the rows)}."""
        return {corpus: (reader, self.shares[corpus]) for corpus, reader in self.readers.items()}

    @property
    def rows_per_epoch(self) -> int:
        """The rows of all corpora together."""
        return sum(reader.rows_per_epoch for reader in self.readers.values())

    @property
    def updates_per_epoch(self) -> float:
        """The updates that read so many rows."""
        return self.rows_per_epoch / self.batch_size

    def state_dict(self) -> dict[str, Any]:
        """The state at the present position, as JSON."""
        return self.state_at(self.position)

    def state_at(self, position: MixturePosition) -> dict[str, Any]:
        """The state at a position, as JSON."""
        corpora = {
            name: list(pair) for name, pair in zip(self.readers, position.corpora, strict=True)
        }
        return {**stage_of(self), "row": position.row, "corpora": corpora}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`, or start if it is of an earlier stage.

        Raises:
            DataError: if it is of other data.
        """
        needed = "corpora, weights, format and seed"
        same = check_stage(self, state, "another mixture", needed, also=EARLIER)
        corpora = (
            reader.position_at(*state["corpora"][name]) for name, reader in self.readers.items()
        )
        self.position = (
            MixturePosition(fit(state["row"], Whole), tuple(corpora)) if same else self._start()
        )


def compute_shares(
    weights: Mapping[str, float | None], tokens: Mapping[str, int], *, temperature: float | None
) -> dict[str, float]:
    """{corpus: its share of the rows}: its weight among the weights, or, if no corpus has one, by
    its size.

    Args:
        weights: The weight of each corpus; None: 1 if others have one.
        temperature: 1 draws by size, larger numbers draw more equally.

    `share_i = n_i ** (1 / temperature) / sum_j n_j ** (1 / temperature)`, n = tokens: the
    temperature of T5 and mT5 (Raffel et al., 2020, arXiv:1910.10683, sec. 3.5.2). Other papers give
    its inverse as an exponent. XLM's 0.5 (Lample and Conneau, 2019, arXiv:1901.07291, sec. 3.1) is
    temperature 2, and mBERT's 0.7 is 1.43. The 0.3 of XLM-R and mT5 (arXiv:1911.02116, 2010.11934)
    is 3.33. Differs: sizes are tokens, where T5 counts examples and XLM sentences; T5's upper limit
    of a size is left out.
    """
    stated = {name: weight for name, weight in weights.items() if weight is not None}
    if stated:
        parts = {name: float(stated.get(name, 1.0)) for name in weights}
    else:
        parts = {name: float(n) ** (1.0 / (temperature or 1.0)) for name, n in tokens.items()}
    total = sum(parts.values())
    return {name: part / total for name, part in parts.items()}


def check_mixture(
    mixture: Mapping[str, Any], temperature: float | None, path: str
) -> list[ConfigError]:
    """The errors in the settings of a mixture at the config path `path`, without a look at the
    data.
    """
    errors = [
        error for name, node in mixture.items() for error in _check_corpus(node, f"{path}.{name}")
    ]
    stated = {name: node.get("language") for name, node in mixture.items()} if not errors else {}
    errors += [
        ConfigError(f"{path}.{name}.path", None, f"the text of language {number}")
        for name, number in stated.items()
        if number is not None and mixture[name].get("path") is None
    ]
    if None in stated.values() and any(each is not None for each in stated.values()):
        name = next(name for name, each in stated.items() if each is None)
        allowed = "a number, from 0 on, as the other corpora have: their rows stand in one batch"
        errors.append(ConfigError(f"{path}.{name}.language", None, allowed))
    return errors or _check_weights(
        {name: node.get("weight") for name, node in mixture.items()}, temperature, path
    )


def _check_corpus(node: Any, where: str) -> list[ConfigError]:
    if not isinstance(node, Mapping):
        return [
            ConfigError(
                where, node, "a corpus is a mapping {path, weight}", fix=f"{where}={{path:{node}}}"
            )
        ]
    known = f"there is no such setting; the settings are {', '.join(KEYS)}"
    errors = [
        ConfigError(f"{where}.{key}", node[key], known + nearest(str(key), KEYS))
        for key in node
        if key not in KEYS
    ]
    weight = node.get("weight")
    number = isinstance(weight, int | float) and not isinstance(weight, bool)
    if weight is not None and not (number and 0 < weight < math.inf):
        fix = "leave the corpus out if none of it should be read"
        errors.append(ConfigError(f"{where}.weight", weight, "a number above 0", fix=fix))
    return errors


def _check_weights(
    weights: Mapping[str, float | None], temperature: float | None, path: str
) -> list[ConfigError]:
    """The errors of settings that are valid alone but do not fit together."""
    if len(weights) == 1:
        return [
            ConfigError(
                path,
                list(weights),
                "a mixture has two corpora or more",
                fix="data.path=... for one",
            )
        ]
    stated = [weight for weight in weights.values() if weight is not None]
    if stated and temperature is not None:
        fix = "leave out the weights, or the temperature"
        return [
            ConfigError(
                "data.temperature", temperature, "has no effect on corpora with weights", fix=fix
            )
        ]
    parts = {name: 1.0 if weight is None else weight for name, weight in weights.items()}
    if not stated or min(stated) >= 1 or math.isclose(sum(parts.values()), 1, abs_tol=1e-6):
        return []
    allowed = (
        "weights below 1 are shares of the rows and must add up to 1, these add up to"
        f" {sum(parts.values()):.6g}"
    )
    allowed += " (without a weight it is 1)" if len(stated) < len(weights) else ""
    like = ", ".join(f"{name}: {weight / min(stated):.3g}" for name, weight in parts.items())
    return [
        ConfigError(
            f"{path}.*.weight",
            parts,
            allowed,
            fix=f"give shares, or relative weights of 1 and more ({like})",
        )
    ]
