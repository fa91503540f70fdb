"""The methods of `operators.Stream`, one module per topic; `operators.pipeline` puts them together."""
