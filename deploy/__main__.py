"""`python -m deploy` is the `causal` command."""

import sys

if not sys.flags.safe_path:
    # `-m` puts the working directory first on the path, so a `queue.py` there would shadow Python's own.  The directory
    # is therefore moved to the end, unless it contains this package.
    import os  # the interpreter has already loaded this module

    home, here = __file__.rpartition(os.sep)[0].rpartition(os.sep)[0], sys.path.pop(0)
    if os.path.realpath(here or ".") == os.path.realpath(home):
        sys.path.insert(0, here)
    else:
        sys.path.append(here)

from deploy.entry import main

sys.exit(main())
