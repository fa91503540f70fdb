"""Event time: how far it has come on each input, who makes watermarks, and what an idle input means."""
