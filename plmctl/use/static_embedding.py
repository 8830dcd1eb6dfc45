"""`plmctl embed` with a file of word vectors in place of a model: bags of vectors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from plmctl.config.uses import Embed
from plmctl.core.errors import ConfigError
from plmctl.core.terminal import remark, tell
from plmctl.knowledge.vector_files import read_static
from plmctl.storage.arrays import write_npz
from plmctl.text.letters import compose
from plmctl.use.embedding_lines import read_texts

_EDGES = ".,;:!?\"'()[]{}<>«»“”‘’„…"  # of a word, where it has no vector with them


def embed_static(spec: Embed, file: Path) -> int:
    """Write the mean of the vectors of the words of each line; zeros for a line without any.

    A word is what is between two spaces, as written, in lower case, or without marks at its ends;
    n-grams make the vector of a word that has none.
    """
    only: dict[str, tuple[object, ...]] = {"layers": ("all",), "pooling": ("none", "mean")}
    for name in ("layers", "pooling", "among", "weights_from"):
        if getattr(spec, name) not in only.get(name, (None,)):
            allowed = "a setting of models: a line is the mean of the vectors of its words"
            raise ConfigError(name, getattr(spec, name), allowed, fix="leave it out")
    texts = [
        compose(text).split() for text in read_texts(Path(spec.input).expanduser(), spec.field)
    ]
    words = {word for line in texts for word in line}
    bare = {word.strip(_EDGES) for word in words}
    read = read_static(file, among={*words, *bare, *map(str.lower, words), *map(str.lower, bare)})
    found: dict[str, np.ndarray] = {}
    for word in words:
        inner = word.strip(_EDGES)
        forms = (word, word.lower(), inner, inner.lower())
        known = next((form for form in forms if form in read.number), inner or word)
        if (vector := read.find(known)) is not None:
            found[word] = vector
    covered = sum(word in found for line in texts for word in line)

    def arrays() -> Iterator[tuple[str, np.ndarray]]:
        for number, line in enumerate(texts):
            rows = [found[word] for word in line if word in found]
            mean = np.mean(rows, 0) if rows else np.zeros(read.width, np.float32)
            size = float(np.linalg.norm(mean)) if spec.normalize else 1.0
            yield f"hidden_{number}", (mean / (size or 1.0)).astype(np.float32)[None]

    write_npz(Path(spec.out), arrays())
    total = sum(map(len, texts))
    if spec.provenance.json:
        counts = {"lines": len(texts), "words": total, "with a vector": covered}
        tell(json.dumps({"out": spec.out, **counts, "width": read.width}))
        return 0
    remark(f"{spec.out}: {len(texts)} lines, {covered:,} of {total:,} words have a vector")
    return 0
