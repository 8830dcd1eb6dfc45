"""From the words of a command to the spec that it runs: that of a saved run, or a new one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from plmctl.config.advice import add_fixes
from plmctl.config.compose import attempt
from plmctl.config.spec import Provenance, RunSpec
from plmctl.core.children import TAKE_UP
from plmctl.core.errors import UsageError, raise_all
from plmctl.runs.resume import resume_spec, take_up


def decide(given: Provenance) -> RunSpec:
    """The spec of the run to go on with, or a new one. Wrong settings are reported together with
    the mistakes in the models and files that the run starts from. A process that torchrun has
    started anew, and a job of a cluster, go on with their run.
    """
    if TAKE_UP in os.environ or int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0):
        given = take_up(given)
    if given.resume:
        return resume_spec(given)
    composition = attempt(given)
    if composition.errors:
        from plmctl.runs.parents import check_parents

        raise_all(check_parents(composition.spec, composition.errors))
    return composition.spec


@contextlib.contextmanager
def advise(given: Provenance) -> Iterator[None]:
    """Add what is to be typed to mistakes in settings that do not say it."""
    try:
        yield
    except UsageError as error:
        raise add_fixes(error, given) from None
