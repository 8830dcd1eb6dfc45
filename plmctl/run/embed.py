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
                                themselves (first_last, pooler, trained)
    ids_<i>     [T]             the token ids, special tokens included
    logits_<i>  [T, K] or [K]   with logits=true: what the model's head says of each token, or of
                                the whole line

T is the number of ids of the line, padding of its own included; an empty line keeps its number and
has T = 0, pooled zeros. Further heads of the model give `logits_<head>_<i>`. Texts longer than
the longest row of the model are cut, and counted. A file that is there already is not written over
unless overwrite=true.
"""

from __future__ import annotations

from pathlib import Path

from plmctl.core.errors import ConfigError
from plmctl.core.terminal import remark
from plmctl.heads.sentences import REDUCTIONS
from plmctl.run.embedding import choose_layers, count_states, embed
from plmctl.run.embedding_lines import read
from plmctl.run.loading import Loaded, load_for
from plmctl.run.schema import Embed
from plmctl.run.sentence_vectors import SentencePooling, choose_pooling
from plmctl.storage.arrays import write_npz
from plmctl.storage.atomic import is_stream, refuse_existing


def write_embeddings(spec: Embed) -> int:
    """Read `input` and write `out`."""
    out = Path(spec.out)
    if out.suffix != ".npz" and not is_stream(out):
        allowed, fix = "a file that ends with .npz: arrays of numpy", out.with_suffix(".npz")
        raise ConfigError("out", spec.out, allowed, fix=f"out={fix}")
    refuse_existing(out, spec.overwrite)
    if spec.normalize and spec.pooling == "none":
        allowed = "false: only vectors of lines are brought to length 1"
        raise ConfigError("normalize", True, allowed, fix="pooling=mean")
    loaded, precision = load_for(spec)
    whole = _choose_whole(spec, loaded)
    layers = choose_layers(spec.layers, count=count_states(loaded))
    lines = read(Path(spec.input), loaded, field=spec.field)
    arrays = embed(
        loaded,
        lines,
        layers=layers,
        pool=None if whole else REDUCTIONS.get(spec.pooling),
        whole=whole,
        normalize=spec.normalize,
        logits=spec.logits,
        batch_size=spec.batch_size,
        precision=precision,
    )
    write_npz(out, arrays)
    tokens = sum(len(line.ids) for line in lines)
    read_as = f"pooling {whole.words}" if whole else f"{len(layers)} layers"
    remark(f"{spec.out}: {len(lines)} lines, {tokens} tokens, {read_as}")
    return 0


def _choose_whole(spec: Embed, loaded: Loaded) -> SentencePooling | None:
    """The pooling of a line as a whole; None for none, or one for each layer."""
    if spec.pooling == "none" or spec.pooling in REDUCTIONS:
        return None
    if spec.layers != "all":
        allowed = f"all: pooling={spec.pooling} chooses the layers itself"
        raise ConfigError("layers", spec.layers, allowed, fix="leave it out")
    return choose_pooling(loaded, spec.pooling, path="pooling")
