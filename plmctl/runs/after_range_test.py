"""The next command behind a range test, which leaves a rate and no model of any use."""

from __future__ import annotations

from collections.abc import Iterator

from plmctl.config.build import build
from plmctl.config.first_session import first_lines
from plmctl.config.spec import key_of
from plmctl.core.spelling import spell_setting, spell_word
from plmctl.runs.session import Session
from plmctl.training.log import METRICS, read_metrics

OF_THE_TEST = ("run.dir", "train.steps", "train.log_every")  # its settings, no other run's


def read_curve(session: Session) -> Iterator[tuple[float, float]]:
    """(learning rate, loss) of each line of the log of training; read only where a schedule
    concludes something.
    """
    file = session.folder / METRICS
    for record in read_metrics(file) if file.is_file() else ():
        if {"lr", "loss"} <= record.keys():
            yield record["lr"], record["loss"]


def commands_with_found(session: Session) -> dict[str, str]:
    """The same run at the rate that its schedule has found; none behind other schedules.

    Returns:
        {a command: a remark on it}, as of `commands_after`.
    """
    spec = session.spec
    schedule = build(spec.schedule, plugins=spec.plugins, path="schedule")
    if not schedule.destroys:
        return {}
    report = {"plmctl report {run}": ""}
    found = schedule.find_settings(read_curve(session))
    if not found:
        return report
    words = [
        spell_word(word)
        for word in first_lines(session.folder)
        if (key := key_of(word)).partition(".")[0] != "schedule"
        and key not in (*OF_THE_TEST, *found)
    ]
    words += [spell_setting(key, value) for key, value in found.items()]
    line = " ".join(["plmctl", spec.provenance.verb, *words])
    about = "its own length and schedule; with -m, a few rates around this one"
    return {line.replace("{", "{{").replace("}", "}}"): about, **report}
