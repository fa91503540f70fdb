"""The rules by which one supervisor leads a multi-host job and passes its journal on.  No I/O."""
