"""Knowledge for text: entities with names, aliases and types, triples, dictionaries that find
mentions, and the reader of encyclopedias that makes them. It neither trains nor knows configs.
"""
