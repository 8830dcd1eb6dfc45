"""An exported folder: the graph of a fine-tuned model as a file of another library, with all that
answers need. `plmctl convert --to onnx` writes one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from plmctl.artifacts.assemble import build_model, without_weights
from plmctl.artifacts.loading import CARD, Loaded, Source, is_deployed, load_for, read_config
from plmctl.core.errors import DataError
from plmctl.core.extras import require_library
from plmctl.runtime.signature import Signature
from plmctl.runtime.stored import LIBRARIES, StoredRuntime
from plmctl.storage.reading import COPY, fit_stored, read_json, read_tensors
from plmctl.training.device.precision import Precision, choose
from plmctl.training.processes.world import device_of

OUTSIDE = "outside.safetensors"
COMPUTED_BY = {"onnx": "onnxruntime", "openvino": "openvino"}  # {format: module}


class GraphCard(TypedDict):
    """The part of `model.json` that plmctl reads."""

    format: str  # onnx or openvino
    numbers: str  # fp32 or int8
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    names: dict[str, str]  # {output: name of its logits in plmctl}
    anchors: NotRequired[str]
    positions: NotRequired[int | None]
    outside: NotRequired[str]  # the file of the weights that answers need besides the graph


def open_deployed(folder: str | os.PathLike[str], *, plugins: Sequence[str] = ()) -> Loaded:
    """The model of an exported folder: without weights, and with the runtime that answers.

    Raises:
        DataError: A file is missing, or is not of this plmctl.
        UsageError: The library that computes it is missing.
    """
    place = Path(folder).expanduser()
    card = fit_stored(read_json(place / CARD), GraphCard, file=place / CARD)
    if card["format"] not in LIBRARIES:
        known = ", ".join(LIBRARIES)
        what = f"format={card['format']!r} is none of {known}"
        raise DataError(what, file=place / CARD, fix=COPY)
    require_library(COMPUTED_BY[card["format"]], card["format"], str(place))
    source = Source(place, read_config(place, plugins=plugins), {}, plugins=plugins)
    with without_weights():
        model = build_model(
            source.config, vocab_size=source.vocab_size, vocab=source.vocab, plugins=plugins
        )
    if outside := card.get("outside"):
        model.load_state_dict(read_tensors(place / outside), strict=False, assign=True)
    return Loaded(model.eval(), source, runtime=make_runtime(place, card))


def make_runtime(folder: Path, card: Mapping[str, Any]) -> StoredRuntime:
    """The runtime of the graph in a folder."""
    signature = Signature(tuple(card["inputs"]), card["names"], card.get("anchors", ""))
    library = LIBRARIES[card["format"]](int8=card["numbers"] == "int8")
    return StoredRuntime(library, folder, signature, card.get("positions"))


def load_to_answer(
    checkpoint: str, device: str, precision: str, plugins: Sequence[str] = ()
) -> tuple[Loaded, Precision]:
    """`load_for`, or the model of an exported folder, whose answers are those of its `runtime`."""
    if not is_deployed(Path(checkpoint).expanduser()):
        return load_for(checkpoint, device, precision, plugins)
    return open_deployed(checkpoint, plugins=plugins), choose(
        precision, device_of(device, "device")
    )
