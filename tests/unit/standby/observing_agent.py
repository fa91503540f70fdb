"""The agent of `tests.unit.standby.observer`, as a module of its own."""

import sys

from tests.unit.standby.observer import main_of_agent as main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
