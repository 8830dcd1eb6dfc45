"""`plmctl data`: one module a data set that is made or checked."""
