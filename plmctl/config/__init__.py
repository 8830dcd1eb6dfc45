"""From the words of a command line to one checked specification.

compose.py    the config of `plmctl <verb> [recipe] [overrides]`, every problem at once
composer.py   Hydra: the one module that knows it, with part_files.py
recipes.py    where conf/ and recipes/ are; headers.py: what each file says of itself
overrides.py  the words: paths quoted, shortcuts spelled out, unknown keys named
schema.py     the plumbing (data, train, eval, run): keys, types, ranges, defaults
finish.py     after composition: one length, no leftovers of replaced parts, signatures
make_spec.py  plain settings become a spec, spec.py: typed, complete, never changed
build.py      a node with `_target_` becomes an object
"""
