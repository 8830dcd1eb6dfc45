"""`plmctl attack`."""

from __future__ import annotations

from plmctl.config.command import About, Command, Result
from plmctl.config.uses import Attack


class AttackCommand(Attack, Command):
    """Change words of texts until a fine-tuned model answers otherwise.

    Candidates for words, constraints on changed texts and the search are parts. All examples are
    attacked side by side, and no text is asked twice.
    """

    about = About(
        "attack",
        place=82,
        examples=(
            "plmctl attack checkpoint=runs/sst2 rows=20 constraint.similarity.least=0.5",
            "plmctl attack checkpoint=runs/sst2 rows=20 attack_candidates=letters",
        ),
        bare="checkpoint",
        metavar="RUN",
        options="json print_config multirun config_dir plugin",
        slots="attack_candidates constraint attack_search",
    )

    def perform(self) -> Result:
        """Do what the settings say."""
        from plmctl.use.attacking import attack

        return attack(self)
