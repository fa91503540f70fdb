"""The methods of `operators.Stream`, one module per topic; `operators.builder.pipeline` combines them."""
