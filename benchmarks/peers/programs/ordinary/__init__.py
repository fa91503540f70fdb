"""Programs such as most users write, here, for Bytewax and without an engine; see `benchmarks.peers.ordinary`.

`user_code` and `flows` also run in the environment of Bytewax, so this module must stay empty.
"""
