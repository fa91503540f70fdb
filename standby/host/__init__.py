"""The processes of one host: how they are started, forked, watched and reaped."""
