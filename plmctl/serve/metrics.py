"""Numbers of a server for Prometheus: no text of a client is in a label."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
TOKENS = (16, 64, 256, 1024, 4096, 16384, 65536)


class Metrics:
    """The numbers of one server."""

    def __init__(self, depth: Callable[[], int]) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "plmctl_requests", "Requests.", ["route", "code"], registry=registry
        )
        self.duration = Histogram(
            "plmctl_request_duration_seconds",
            "Seconds from a request to its answer.",
            ["route"],
            buckets=SECONDS,
            registry=registry,
        )
        self.waited = Histogram(
            "plmctl_queue_duration_seconds",
            "Seconds that the first text of a batch, and its computation, took.",
            ["engine"],
            buckets=SECONDS,
            registry=registry,
        )
        self.batch = Histogram(
            "plmctl_batch_size", "Texts of a batch.", ["engine"], buckets=SIZES, registry=registry
        )
        self.tokens = Histogram(
            "plmctl_batch_tokens",
            "Tokens of a batch.",
            ["engine"],
            buckets=TOKENS,
            registry=registry,
        )
        self.texts = Counter(
            "plmctl_labelled_texts", "Texts with an answer.", ["model"], registry=registry
        )
        self.labels = Counter(
            "plmctl_labels", "Guessed labels.", ["model", "label"], registry=registry
        )
        self.marks = Counter(
            "plmctl_marked_texts",
            "Texts that were cut, are hardly known, or have an unsure label.",
            ["model", "mark"],
            registry=registry,
        )
        waiting = Gauge("plmctl_queue_depth", "Texts that wait.", registry=registry)
        waiting.set_function(depth)

    def answered(self, engine: str, questions: int, tokens: int, waited: float) -> None:
        """A batch is answered."""
        self.waited.labels(engine).observe(waited)
        self.batch.labels(engine).observe(questions)
        self.tokens.labels(engine).observe(tokens)

    def labelled(
        self,
        model: str,
        names: Collection[str],
        answers: Iterable[Any],
        marks: Iterable[Mapping[str, Any]],
    ) -> None:
        """Texts have labels.

        Args:
            model: The name of the model.
            names: Its labels; other answers may be texts, and are not counted by what they are.
            answers: The answers.
            marks: The marks of each text.
        """
        for answer in answers:
            self.texts.labels(model).inc()
            guess = answer.get("guess") if isinstance(answer, Mapping) else None
            own = guess if isinstance(guess, list) else [guess]
            for label in (name for name in names if name in own):
                self.labels.labels(model, label).inc()
        for mark in (mark for own in marks for mark in own):
            self.marks.labels(model, mark).inc()

    def finished(self, route: str, code: int, seconds: float) -> None:
        """A request is answered."""
        self.requests.labels(route, str(code)).inc()
        self.duration.labels(route).observe(seconds)

    def spell(self) -> bytes:
        """All numbers, as Prometheus reads them."""
        return generate_latest(self.registry)
