"""The rules by which one supervisor leads a job of several hosts and hands its journal on.  No I/O."""
