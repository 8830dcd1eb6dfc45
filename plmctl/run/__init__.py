"""From a command line to checked parts.

compose.py    the config of `plmctl <verb> [recipe] [overrides]`, every problem at once
recipes.py    where conf/ and recipes/ are, and what each file says of itself
overrides.py  the words of the command line: paths quoted, shortcuts spelled out, unknown keys named
schema.py     the plumbing of each command: keys, types, ranges, defaults
groups.py     what they share: data, train, eval, run
resolvers.py  the arithmetic in config files: ${portion:share,total}
values.py     one value against one annotation
finish.py     after composition: one length, no leftovers of replaced parts, types and signatures
build.py      a node with `_target_` becomes an object
contract.py   do the chosen parts fit together?
resume.py     the saved config of a run, and what may change
"""
