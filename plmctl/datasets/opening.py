"""A labelled set, or a model with the task that it was fine-tuned on, for the commands that write
data sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plmctl.artifacts.loading import Loaded, load
from plmctl.artifacts.model_facts import reading
from plmctl.config.build import build
from plmctl.core.errors import ConfigError
from plmctl.tasks import inference
from plmctl.tasks.record import Example
from plmctl.training.device.precision import Precision, choose
from plmctl.training.processes.world import device_of
from plmctl.use.predict import BATCH, predict


def build_task(
    node: Any,
    plugins: Sequence[str],
    question: str,
    *,
    given: Mapping[str, Any] | None = None,
    fix: str = "task=classification task.path=<folder>",
) -> Any:
    """The task that the setting `task` names; ConfigError with a `question` where it is null."""
    if node is None:
        raise ConfigError("task", ..., question, fix=fix)
    return build(node, given or {"pooling": "first"}, plugins, path="task")


@dataclass(frozen=True)
class Taught:
    """A model in fp32 on its device, with the task that it was fine-tuned on; None without one."""

    loaded: Loaded
    task: Any
    precision: Precision
    given: Mapping[str, Any]  # facts about the model, for the parts of a task

    @classmethod
    def open(
        cls, checkpoint: str, plugins: Sequence[str], *, device: str = "auto", **changes: Any
    ) -> Taught:
        """The model of a checkpoint.

        Args:
            changes: Other values for settings of its task.
        """
        loaded = load(checkpoint, plugins=plugins)
        given = {"vocab": loaded.vocab, **reading(loaded.config, plugins)}
        node = loaded.own_task()
        task = build({**node, **changes}, given, plugins, path="task") if node else None
        precision = choose("fp32", device_of(device, "device"))
        loaded.model.to(precision.device)
        return cls(loaded, task, precision, given)

    def predict(
        self, split: str, examples: list[Example], *, batch_size: int = BATCH
    ) -> list[dict[str, Any]]:
        """The answers of the model to examples."""
        encoded = inference.encode_split(self.task, split, examples, self.loaded.tokenizer)
        return predict(
            self.loaded.model, self.task, encoded, precision=self.precision, batch_size=batch_size
        )[0]
