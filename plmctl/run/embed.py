"""`plmctl embed checkpoint=... input=... out=x.npz`: contextual embeddings of the lines of a file.

Input: lines of text, where the model's task reads pairs of two with a tab between, as `plmctl eval
input=` takes them; the column `field` of a table (.csv, .tsv, .parquet) whose first line names
its columns; or JSON lines with a text in `field`, or with `input_ids`, taken as they are, and
optionally `segment_ids` and `padding` (1 or true: this token is padding) or `attention_mask` (1: it
is not). Line or row i (from 0) gives

    hidden_<i>  [layers, T, W]  the embedding output, then the state after each layer; `layers`
                                picks some
                [layers, W]     with `pooling`: one vector for all tokens but padding, the special
                                ones among them
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
from plmctl.run.embedding import POOLINGS, choose_layers, count_states, embed
from plmctl.run.embedding_lines import read
from plmctl.run.loading import load_for
from plmctl.run.schema import Embed
from plmctl.storage.arrays import write_npz
from plmctl.storage.atomic import is_stream, refuse_existing


def write_embeddings(spec: Embed) -> int:
    """Read `input` and write `out`."""
    out = Path(spec.out)
    if out.suffix != ".npz" and not is_stream(out):
        allowed, fix = "a file that ends with .npz: arrays of numpy", out.with_suffix(".npz")
        raise ConfigError("out", spec.out, allowed, fix=f"out={fix}")
    refuse_existing(out, spec.overwrite)
    loaded, precision = load_for(spec)
    layers = choose_layers(spec.layers, count=count_states(loaded))
    lines = read(Path(spec.input), loaded, field=spec.field)
    arrays = embed(
        loaded,
        lines,
        layers=layers,
        pool=POOLINGS[spec.pooling],
        logits=spec.logits,
        batch_size=spec.batch_size,
        precision=precision,
    )
    write_npz(out, arrays)
    tokens = sum(len(line.ids) for line in lines)
    remark(f"{spec.out}: {len(lines)} lines, {tokens} tokens, {len(layers)} layers")
    return 0
