"""The operator kinds, one package each; `registry` lists them all by the name of the builder's method."""
