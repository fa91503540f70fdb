"""`causal replay`: a recorded job, or a part of it, performed again: verified, or event by event in a debugger."""
