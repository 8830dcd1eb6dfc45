"""An exported folder: a model as a file of another library, with all that answers need.
`plmctl convert --to onnx` writes one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NotRequired, TypedDict

from plmctl.artifacts.assemble import build_model, without_weights
from plmctl.artifacts.loading import CARD, Loaded, Source, is_deployed, load_for, read_config
from plmctl.core.errors import DataError
from plmctl.core.extras import require_library
from plmctl.runtime.base import Runtime
from plmctl.runtime.signature import Signature
from plmctl.runtime.stored import LIBRARIES, WRITERS, StoredRuntime, StoredWriter
from plmctl.storage.reading import COPY, fit_stored, read_json, read_tensors
from plmctl.training.device.precision import Precision, choose
from plmctl.training.processes.world import device_of

OUTSIDE = "outside.safetensors"


class FolderCard(TypedDict):
    """The part of `model.json` that plmctl reads, of every format."""

    format: str  # one of `FORMATS`
    numbers: str  # fp32 or int8


class GraphCard(FolderCard):
    """The part that it reads of a graph."""

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
    read = read_json(place / CARD)
    name = fit_stored(read, FolderCard, file=place / CARD)["format"]
    if name not in FORMATS:
        what = f"format={name!r} is none of {', '.join(FORMATS)}"
        raise DataError(what, file=place / CARD, fix=COPY)
    card = fit_stored(read, FORMATS[name].card, file=place / CARD)
    require_library(FORMATS[name].module, name, str(place))
    source = Source(place, read_config(place, plugins=plugins), {}, plugins=plugins)
    with without_weights():
        model = build_model(
            source.config, vocab_size=source.vocab_size, vocab=source.vocab, plugins=plugins
        )
    if outside := card.get("outside"):
        model.load_state_dict(read_tensors(place / outside), strict=False, assign=True)
    runtime = make_runtime(place, card)
    if name in WRITERS:
        model = runtime.let_write(model)
    return Loaded(model.eval(), source, runtime=runtime)


def make_runtime(folder: Path, card: Mapping[str, Any]) -> Runtime:
    """The runtime of the model in a folder."""
    return FORMATS[card["format"]].make(folder, card)


def _open_graph(folder: Path, card: Mapping[str, Any]) -> Runtime:
    signature = Signature(tuple(card["inputs"]), card["names"], card.get("anchors", ""))
    library = LIBRARIES[card["format"]](int8=card["numbers"] == "int8")
    return StoredRuntime(library, folder, signature, card.get("positions"))


def _open_writer(folder: Path, card: Mapping[str, Any]) -> Runtime:
    return StoredWriter(WRITERS[card["format"]](int8=card["numbers"] == "int8"), folder)


class FolderFormat(NamedTuple):
    """A format of exported folders."""

    module: str  # the library that computes it
    card: type  # the part of `model.json` that is read
    make: Callable[[Path, Mapping[str, Any]], Runtime]


FORMATS = {
    "onnx": FolderFormat("onnxruntime", GraphCard, _open_graph),
    "openvino": FolderFormat("openvino", GraphCard, _open_graph),
    "ctranslate2": FolderFormat("ctranslate2", FolderCard, _open_writer),
}


def load_to_answer(
    checkpoint: str, device: str, precision: str, plugins: Sequence[str] = ()
) -> tuple[Loaded, Precision]:
    """`load_for`, or the model of an exported folder, whose answers are those of its `runtime`."""
    if not is_deployed(Path(checkpoint).expanduser()):
        return load_for(checkpoint, device, precision, plugins)
    return open_deployed(checkpoint, plugins=plugins), choose(
        precision, device_of(device, "device")
    )
