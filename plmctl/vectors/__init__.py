"""Static vectors of words: methods that learn them from text, or take them out of a model."""
