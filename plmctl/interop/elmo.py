"""ELMo's published weights: a folder with options.json and weights in HDF5 (allenai/bilm-tf,
model.py and training.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import numpy as np
import torch
from torch import Tensor

from plmctl.core.errors import ConfigError, DataError
from plmctl.core.extras import require_library
from plmctl.core.values import Amount, Count, Rule
from plmctl.interop.hf import Imported
from plmctl.storage.reading import MALFORMED, blame_file, read_json
from plmctl.text.tokenizer import Tokenizer

OPTIONS = "options.json"
GATES = (0, 2, 1, 3)  # the index of torch's i, f, g, o in TensorFlow's i, g, f, o
MOST = 100  # layers, or kinds of filters
AGAIN = "download it again"
DIRECTIONS = ("forwards", "backwards")  # RNN_0, RNN_1


_Filter = Annotated[
    list[Count], Rule(lambda pair: len(pair) == 2, "a width and a number of filters")
]


class _Embedding(TypedDict):
    dim: Count


class _CharCNN(TypedDict):
    activation: str
    n_characters: Count
    max_characters_per_token: Count
    filters: Annotated[
        list[_Filter], Rule(lambda filters: 0 < len(filters) <= MOST, f"between 1 and {MOST} pairs")
    ]
    n_highway: Annotated[int, Rule(lambda n: 0 <= n <= MOST, f"between 0 and {MOST}")]
    embedding: _Embedding


class _LSTM(TypedDict):
    dim: Count
    projection_dim: Count
    n_layers: Annotated[int, Rule(lambda n: 0 < n <= MOST, f"between 1 and {MOST}")]
    use_skip_connections: bool
    cell_clip: NotRequired[Count | Amount | None]
    proj_clip: NotRequired[Count | Amount | None]


class _Options(TypedDict):
    lstm: _LSTM
    char_cnn: _CharCNN


def is_checkpoint(folder: Path) -> bool:
    """Whether the folder has the options of an ELMo model."""
    return _options_file(folder) is not None


def read(folder: Path) -> Imported:
    """Read config and weights; these files have no softmax and no vocabulary: words are read by
    their spelling.
    """
    file = _options_file(folder)
    assert file is not None
    try:
        options = read_json(file, _Options, fix=AGAIN)
    except DataError as error:
        raise DataError(
            f"not the options of a biLM ({error.message})", file=file, fix=AGAIN
        ) from error
    nodes = _nodes(options, file)
    weights = _weights_file(folder)
    stored = _read_arrays(weights)
    with blame_file(weights, "not the weights of these options", fix=AGAIN):
        tensors, left = _convert(stored, options, folder)
    config = {**nodes, "heads": {}, "origin": {"family": "elmo", "pad": 0}}
    return Imported(config, tensors, left)


def make_tokenizer() -> Tokenizer:
    """A tokenizer whose words end at spaces, as in the training text of these models; all words are
    unknown to it, so all are spelled.
    """
    return Tokenizer.train(["the"], kind="word", vocab_size=8, punctuation=False)


def _nodes(options: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """size, pattern, position and model as conf/ composes them; ConfigError for a setting that our
    parts cannot express.
    """
    lstm, cnn = options["lstm"], options["char_cnn"]
    allowed: tuple[tuple[str, Any, Any], ...] = (
        ("char_cnn.activation", cnn["activation"], "relu"),
        ("char_cnn.n_characters", cnn["n_characters"], 262),
        ("char_cnn.max_characters_per_token", cnn["max_characters_per_token"], 50),
        ("lstm.proj_clip", lstm.get("proj_clip"), lstm.get("cell_clip")),
    )
    for key, value, only in allowed:
        if value != only:
            raise ConfigError(f"{file}: {key}", value, f"{only} (nothing else is supported)")
    clip = lstm.get("cell_clip")
    words = {
        "_target_": "plmctl.nn.char_cnn.CharCNN",
        "_partial_": True,
        "filters": [list(pair) for pair in cnn["filters"]],
        "char_width": cnn["embedding"]["dim"],
        "num_highways": cnn["n_highway"],
    }
    model = {
        "_target_": "plmctl.models.bilm.BiLM",
        "words": words,
        "hidden_width": lstm["dim"],
        "dropout": 0.1,
        "clip": None if clip is None else float(clip),
        "skip": bool(lstm["use_skip_connections"]),
        "one_boundary": False,
        "initializer": {
            "_target_": "plmctl.nn.init.truncated_normal",
            "_partial_": True,
            "std": 0.02,
        },
        "classifier": {"pooler": False, "dense": False, "bias": True},
    }
    size = {
        "num_layers": lstm["n_layers"],
        "width": 2 * lstm["projection_dim"],
        "num_heads": 1,
        "inner_width": lstm["dim"],
    }
    slots = {
        "pattern": "plmctl.attention.patterns.base.Full",
        "position": "plmctl.nn.positions.NoPosition",
    }
    return {
        "size": size,
        **{name: {"_target_": part} for name, part in slots.items()},
        "model": model,
    }


def _convert(
    stored: Mapping[str, np.ndarray], options: Mapping[str, Any], folder: Path
) -> tuple[dict[str, Tensor], list[str]]:
    """(our tensors, names that we do not use); DataError for one that is missing or of another
    shape.
    """
    left = dict.fromkeys(stored)

    def take(name: str) -> Tensor:
        if name not in stored:
            problem = f"without the weights {name}"
            raise DataError(problem, file=_weights_file(folder), fix="download the whole model")
        left.pop(name, None)
        return torch.from_numpy(np.asarray(stored[name], np.float32))

    cnn, lstm = options["char_cnn"], options["lstm"]
    table = take("char_embed")
    # ids are one more than in training
    tensors = {"characters.weight": torch.cat([torch.zeros_like(table[:1]), table])}
    for n in range(len(cnn["filters"])):
        tensors[f"convolutions.{n}.weight"] = take(f"CNN/W_cnn_{n}")[0].permute(2, 1, 0)
        tensors[f"convolutions.{n}.bias"] = take(f"CNN/b_cnn_{n}")
    for n in range(cnn["n_highway"]):
        for name in ("carry", "transform"):
            tensors[f"{name}.{n}.weight"] = take(f"CNN_high_{n}/W_{name}").T
            tensors[f"{name}.{n}.bias"] = take(f"CNN_high_{n}/b_{name}")
    total = sum(number for _, number in cnn["filters"])
    # there is no projection if it would not change the width
    projected = "CNN_proj/W_proj" in stored or total != lstm["projection_dim"]
    tensors["projection.weight"] = take("CNN_proj/W_proj").T if projected else torch.eye(total)
    tensors["projection.bias"] = take("CNN_proj/b_proj") if projected else torch.zeros(total)
    tensors = {f"words.{name}": tensor for name, tensor in tensors.items()}
    for number, direction in enumerate(DIRECTIONS):
        for layer in range(lstm["n_layers"]):
            home = f"RNN_{number}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            weights = _cell(take(f"{home}/W_0"), take(f"{home}/B"), take(f"{home}/W_P_0"))
            tensors |= {f"{direction}.{layer}.{name}": tensor for name, tensor in weights.items()}
    return {f"backbone.{name}": tensor.contiguous() for name, tensor in tensors.items()}, list(left)


def _cell(w: Tensor, b: Tensor, projection: Tensor) -> dict[str, Tensor]:
    """The tensors of our cell for W_0 [in + P, 4 H], B [4 H], W_P_0 [H, P]; the 1 that their code
    adds to f is in our bias.
    """
    gates = w.T.chunk(4)
    rows = torch.cat([gates[number] for number in GATES])
    i, g, f, o = b.chunk(4)
    inputs = w.shape[0] - projection.shape[1]
    return {
        "input.weight": rows[:, :inputs],
        "recurrent.weight": rows[:, inputs:],
        "input.bias": torch.cat([i, f + 1, g, o]),
        "projection.weight": projection.T,
    }


def _read_arrays(file: Path) -> dict[str, np.ndarray]:
    """{path inside the file: array}."""
    h5py = require_library("h5py", "elmo", str(file))
    arrays: dict[str, np.ndarray] = {}
    try:
        with h5py.File(file, "r") as stored:
            stored.visititems(
                lambda name, node: (
                    arrays.update({name: node[()]}) if isinstance(node, h5py.Dataset) else None
                )
            )
    except (OSError, *MALFORMED) as error:
        raise DataError(
            f"cannot be read as HDF5 ({error})", file=file, fix="download it again"
        ) from error
    return arrays


def _options_file(folder: Path) -> Path | None:
    """options.json, or a downloaded file with the name of the model before it."""
    return next(iter(sorted(folder.glob(f"*{OPTIONS}"))), None)


def _weights_file(folder: Path) -> Path:
    files = sorted(folder.glob("*.hdf5"))
    if len(files) != 1:
        problem = f"{len(files)} files *.hdf5 with {OPTIONS}, not one"
        raise DataError(problem, file=folder, fix="keep only one of them there")
    return files[0]
