"""`plmctl embed checkpoint=... input=... out=x.npz`: contextual embeddings of the lines of a file.

Input: lines of text, where the model's task reads pairs of two with a tab between, as `plmctl eval
input=` takes them; the column `field` of a table (.csv, .tsv, .parquet) whose first line names
its columns; or JSON lines with a text in `field`, or with `input_ids`, taken as they are, and
optionally `segment_ids` and `padding` (1 or true: this token is padding) or `attention_mask` (1: it
is not). Line or row i (from 0) gives

    hidden_<i>  [layers, T, W]  the embedding output, then the state after each layer; `layers`
                                picks some
                [layers, W]     with `pooling`: one vector for all tokens but padding, the special
                                ones among them; [1, W] of poolings that choose the layers
                                themselves (first_last, pooler, idf, sif, trained)
    ids_<i>     [T]             the token ids, special tokens included
    logits_<i>  [T, K] or [K]   with logits=true: what the model's head says of each token, or of
                                the whole line

T is the number of ids of the line, padding of its own included; an empty line keeps its number and
has T = 0, pooled zeros. Further heads of the model give `logits_<head>_<i>`. Texts longer than
the longest row of the model are cut, and counted. A file that is there already is not written over
unless overwrite=true. A file with one vector for each line also has `made`, from which `among`
takes how these were made, and the texts, and `weights`, [V], where tokens have any.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from plmctl.artifacts.loading import Loaded, load_for
from plmctl.config.uses import Embed
from plmctl.core.errors import ConfigError
from plmctl.core.terminal import counted, remark, tell
from plmctl.heads.sentences import REDUCTIONS
from plmctl.knowledge.vector_files import find_static
from plmctl.storage.arrays import write_npz
from plmctl.storage.atomic import is_stream, refuse_existing
from plmctl.storage.paths import refuse_ending
from plmctl.training.device.precision import Precision
from plmctl.use.embedding_lines import EmbeddingLine, read, read_texts
from plmctl.use.semantic_search import Manner, VectorFile, find_nearest, write_found
from plmctl.use.sentence_vectors import (
    SentencePooling,
    check_weights,
    choose_pooling,
    count_weights,
)
from plmctl.use.static_embedding import embed_static
from plmctl.use.vectors import choose_layers, count_states, embed


def write_embeddings(spec: Embed) -> int:
    """Read `input` and write `out`; with `among`, what is nearest to its lines."""
    out = Path(spec.out)
    suffix = ".npz" if spec.among is None else ".jsonl"
    if not is_stream(out):
        kind = "arrays of numpy" if spec.among is None else "an answer a line"
        refuse_ending(spec.out, [suffix], kind)
    refuse_existing(out, spec.overwrite)
    if static := find_static(str(spec.checkpoint)):
        return embed_static(spec, static)
    if spec.among is not None:
        return _search(spec, VectorFile.read(Path(spec.among).expanduser()))
    check_manner(spec)
    loaded, precision = load_for(spec)
    manner = choose_manner(spec, loaded)
    lines = read(Path(spec.input), loaded, field=spec.field)
    manner = count_manner(manner, spec, loaded, lines)
    arrays = embed_lines(spec, loaded, manner, lines, precision)
    if manner.whole or (spec.pooling != "none" and len(manner.layers) == 1):
        weights = None if manner.whole is None else manner.whole.weights
        arrays = itertools.chain(arrays, _describe(spec).write(weights))
    write_npz(out, arrays)
    tokens = sum(len(line.ids) for line in lines)
    cut = sum(line.cut for line in lines)
    if spec.provenance.json:
        width = loaded.model.backbone.width
        counts = {"lines": len(lines), "tokens": tokens, "cut": cut, "width": width}
        tell(json.dumps({"out": spec.out, **counts, "of": manner.words}))
        return 0
    remark(f"{spec.out}: {counted(len(lines), 'line')}, {counted(tokens, 'token')}, {manner.words}")
    return 0


class EmbeddingManner(NamedTuple):
    """How vectors are made: of which layers, or of the line as a whole."""

    layers: list[int]
    whole: SentencePooling | None

    @property
    def words(self) -> str:
        """What a person reads of it."""
        return f"pooling {self.whole.words}" if self.whole else f"{len(self.layers)} layers"


def check_manner(spec: Embed) -> None:
    """ConfigError for settings that contradict each other."""
    if spec.normalize and spec.pooling == "none":
        allowed = "false: only vectors of lines are brought to length 1"
        raise ConfigError("normalize", True, allowed, fix="pooling=mean")
    check_weights(spec.weights_from, spec.pooling)


def choose_manner(spec: Embed, loaded: Loaded) -> EmbeddingManner:
    """How the settings have the vectors of this model made."""
    whole = _choose_whole(spec, loaded)
    return EmbeddingManner(choose_layers(spec.layers, count=count_states(loaded)), whole)


def count_manner(
    manner: EmbeddingManner, spec: Embed, loaded: Loaded, lines: Sequence[EmbeddingLine]
) -> EmbeddingManner:
    """The same, with what tokens weigh in the text `weights_from`, else in these lines."""
    if manner.whole is None:
        return manner
    source = spec.weights_from
    if source is not None:
        lines = read(Path(source), loaded, field=spec.field)
    whole = count_weights(manner.whole, loaded, lines, source=source or spec.input)
    return manner._replace(whole=whole)


def embed_lines(
    spec: Embed,
    loaded: Loaded,
    manner: EmbeddingManner,
    lines: Sequence[EmbeddingLine],
    precision: Precision,
) -> Iterable[tuple[str, np.ndarray]]:
    """(name, array) of every line, as an .npz file has them."""
    return embed(
        loaded,
        lines,
        layers=manner.layers,
        pool=None if manner.whole else REDUCTIONS.get(spec.pooling),
        whole=manner.whole,
        normalize=spec.normalize,
        logits=spec.logits,
        batch_size=spec.batch_size,
        precision=precision,
    )


def _describe(spec: Embed) -> Manner:
    """What a later search has to know of the vectors."""
    texts = read_texts(Path(spec.input).expanduser(), spec.field)
    layers: Any = spec.layers if isinstance(spec.layers, int | str) else list(spec.layers)
    return Manner(str(spec.checkpoint), spec.pooling, layers, spec.normalize, texts)


def _search(spec: Embed, file: VectorFile) -> int:
    """Find the lines of `among` that are nearest to those of `input`."""
    made = file.manner
    if spec.weights_from is not None:
        allowed = f"null: the tokens weigh what {spec.among} says"
        raise ConfigError("weights_from", spec.weights_from, allowed, fix="leave it out")
    layers: Any = made.layers if isinstance(made.layers, int | str) else tuple(made.layers)
    same = {"pooling": made.pooling, "layers": layers, "normalize": made.normalize}
    default = Embed()
    for name, value in same.items():
        given = getattr(spec, name)
        if given not in (value, getattr(default, name)):
            allowed = f"{value}, as the vectors in {spec.among} were made"
            raise ConfigError(name, given, allowed, fix="leave it out")
    if spec.checkpoint != made.checkpoint:
        remark(f"{spec.among} was made with checkpoint={made.checkpoint}; it must be the same")
    spec = replace(spec, **same)
    loaded, precision = load_for(spec)
    manner = choose_manner(spec, loaded)
    if manner.whole is not None and manner.whole.weighs:
        manner = manner._replace(whole=replace(manner.whole, weights=file.weights))
    lines = read(Path(spec.input), loaded, field=spec.field)
    arrays = embed_lines(replace(spec, logits=False), loaded, manner, lines, precision)
    known = {name: array[0] for name, array in arrays if name.startswith("hidden_")}
    numbers = [number for number, line in enumerate(lines) if line.ids]
    texts = read_texts(Path(spec.input).expanduser(), spec.field)
    vectors = np.stack([known[f"hidden_{number}"] for number in numbers])
    answers = list(find_nearest(spec, file, [texts[number] for number in numbers], vectors))
    write_found(spec, answers, len(file.vectors))
    return 0


def _choose_whole(spec: Embed, loaded: Loaded) -> SentencePooling | None:
    """The pooling of a line as a whole; None for none, or one for each layer."""
    if spec.pooling == "none" or spec.pooling in REDUCTIONS:
        return None
    if spec.layers != "all":
        allowed = f"all: pooling={spec.pooling} chooses the layers itself"
        raise ConfigError("layers", spec.layers, allowed, fix="leave it out")
    return choose_pooling(loaded, spec.pooling, path="pooling")
