"""Are the files there from which a run knows words, entities and facts?"""

from __future__ import annotations

from torch import nn

from plmctl.config.build import MISSING
from plmctl.config.spec import RunSpec, thaw
from plmctl.config.walks import all_parts_in
from plmctl.core.errors import PlmctlError, collect, raise_all
from plmctl.core.locate import locate, parameters


def check_opened(spec: RunSpec) -> None:
    """Raise for every file that a part of a spec will open (its class says in `opens` which) and
    that is not there.

    Of a model that starts from another one, tables that a lexicon fills come with the weights.
    """
    errors: list[PlmctlError] = []
    begun = spec.provenance.resume or spec.get("init") or spec.get("checkpoint")
    for path, node in all_parts_in(thaw(spec)):
        try:
            part = locate(node["_target_"], spec.plugins)
        except ValueError:
            continue  # told by the check of its slot
        is_module = isinstance(part, type) and issubclass(part, nn.Module)
        if begun and path.startswith("model.") and not is_module:
            continue
        known = parameters(part)
        for name, confirm in getattr(part, "opens", {}).items():
            given = node.get(name, known[name].default if name in known else MISSING)
            if given != MISSING:
                with collect(errors):
                    confirm(given)
    raise_all(errors)
