"""Stands for a supervisor or an agent that tries for a while, says why it cannot, and ends."""

import sys
import time

time.sleep(0.2)
print("no luck today", flush=True)
sys.exit(1)
