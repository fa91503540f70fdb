"""`python -m deploy` is the `causal` command."""

import sys

from deploy.command import main

sys.exit(main())
