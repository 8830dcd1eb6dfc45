"""`plmctl attack`."""

from __future__ import annotations

from typing import Any

from plmctl.cli.declare import command
from plmctl.cli.options import RunWords
from plmctl.cli.start import start


@command(
    "attack",
    place=82,
    bare="checkpoint",
    examples=(
        "plmctl attack checkpoint=runs/sst2 rows=20 constraint.similarity.least=0.5",
        "plmctl attack checkpoint=runs/sst2 rows=20 attack_candidates=letters",
    ),
    slots="attack_candidates constraint attack_search",
    options="json print_config multirun config_dir plugin",
)
def attack(words: RunWords = None, **options: Any) -> None:
    """Change words of texts until a fine-tuned model answers otherwise.

    Candidates for words, constraints on changed texts and the search are parts. All examples are
    attacked side by side, and no text is asked twice.
    """
    start("attack", words, **options)
