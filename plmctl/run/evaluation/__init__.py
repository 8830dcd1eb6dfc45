"""`plmctl eval`: one module a question that a model is asked."""
