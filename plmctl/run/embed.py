"""`plmctl embed checkpoint=... input=... out=x.npz`: contextual embeddings of the lines of a file.

Input: lines of text; the column `field` of a table (.csv, .tsv, .parquet) whose first line names
its columns; or JSON lines with a text in `field`, or with `input_ids`, taken as they are, and
optionally `segment_ids` and `padding` (1 or true: this place is padding) or `attention_mask` (1: it
is not). Line or row i (from 0) gives

    hidden_<i>  [layers, T, W]  the embedding output, then the state after each layer; `layers`
                                picks some
                [layers, W]     with `pooling`: one vector for all tokens but padding, the special
                                ones among them
    ids_<i>     [T]             the token ids, special tokens included
    logits_<i>  [T, K] or [K]   with logits=true: what the model's head says of each token, or of
                                the whole line

T is the number of ids of the line, padding of its own included; an empty line keeps its number and
has T = 0, pooled zeros. Further heads of the model give `logits_<head>_<i>`. Texts longer than the
model's places are cut, and counted. A file that is there already is not written over unless
overwrite=true.
"""

from __future__ import annotations

from pathlib import Path

from plmctl.core.errors import ConfigError
from plmctl.core.terminal import remark
from plmctl.run.embedding import POOLINGS, choose_layers, count_states, embed, write_arrays
from plmctl.run.embedding_lines import read
from plmctl.run.loading import load
from plmctl.run.schema import Embed
from plmctl.storage.atomic import is_stream, refuse_existing
from plmctl.training.device.precision import choose
from plmctl.training.processes.world import device_of


def write_embeddings(spec: Embed) -> int:
    out = Path(spec.out)
    if out.suffix != ".npz" and not is_stream(out):
        raise ConfigError(
            "out",
            spec.out,
            "a file that ends with .npz: arrays of numpy",
            fix=f"out={out.with_suffix('.npz')}",
        )
    refuse_existing(out, spec.overwrite)
    precision, loaded = (
        choose(spec.precision, device_of(spec.device, "device")),
        load(spec.checkpoint, plugins=spec.plugins),
    )
    layers = choose_layers(spec.layers, count=count_states(loaded))
    lines = read(Path(spec.input), loaded, field=spec.field)
    loaded.model.to(precision.device)
    pool = POOLINGS[spec.pooling]
    made = embed(
        loaded,
        lines,
        layers=layers,
        pool=pool,
        logits=spec.logits,
        batch_size=spec.batch_size,
        precision=precision,
    )
    write_arrays(out, made)
    remark(
        f"{spec.out}: {len(lines)} lines,"
        f" {sum(len(line.ids) for line in lines)} tokens, {len(layers)} layers"
    )
    return 0
