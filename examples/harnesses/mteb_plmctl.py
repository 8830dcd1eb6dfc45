"""An encoder of MTEB (`mteb`) that is a run of plmctl.

    import mteb
    from mteb_plmctl import PlmctlEncoder
    mteb.evaluate(PlmctlEncoder("runs/simcse"), mteb.get_tasks(tasks=["STSBenchmark"]))

Methods are those of `mteb.models.models_protocols.EncoderProtocol` (mteb 2.26).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mteb.models.model_meta import ModelMeta

import plmctl


class PlmctlEncoder:
    """The vectors of texts by a checkpoint of plmctl.

    Args:
        model_name: A run, a checkpoint or a Hugging Face folder.
        revision: A name of its version, for the files of results.
        device: The device of the computation.
        pooling: The pooling of tokens, as `plmctl embed`.
        layer: The layer whose states are pooled.
    """

    def __init__(
        self,
        model_name: str,
        revision: str | None = None,
        *,
        device: str | None = None,
        pooling: Any = "mean",
        layer: int = -1,
        **_: Any,
    ) -> None:
        self.model = plmctl.load(model_name, device=device or "cpu")  # type: ignore[arg-type]
        self.pooling, self.layer = pooling, layer
        name = "plmctl/" + str(model_name).strip("/").rpartition("/")[2]
        known = {"name": name, "revision": revision or "none", "languages": None}
        self.mteb_model_meta = ModelMeta.create_empty(overwrites=known)

    def encode(
        self,
        inputs: Any,
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        prompt_type: Any = None,
        **kwargs: Any,
    ) -> np.ndarray:
        """[n, W] the vectors of the texts of all batches.

        Args:
            inputs: Batches with a list under "text".
            task_metadata: The task; every task gets the same vectors.
            hf_split: The split of its data.
            hf_subset: The subset of its data.
            prompt_type: Query or document.
            kwargs: More settings of the harness, of which `batch_size` counts.
        """
        texts = [text for batch in inputs for text in batch["text"]]
        size = int(kwargs.get("batch_size", 32))
        return self.model.embed(texts, pooling=self.pooling, layer=self.layer, batch_size=size)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> np.ndarray:
        """[n, m] cosines of vectors with each other."""
        return _unit(embeddings1) @ _unit(embeddings2).T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> np.ndarray:
        """[n] cosines of vectors in pairs."""
        return (_unit(embeddings1) * _unit(embeddings2)).sum(-1)


def _unit(vectors: Any) -> np.ndarray:
    """Vectors of length 1."""
    rows = np.asarray(vectors, np.float32)
    return rows / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-12)
