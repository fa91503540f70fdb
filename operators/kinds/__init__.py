"""The operator kinds, one package each; `registry` lists them all by the names of their builder methods."""
