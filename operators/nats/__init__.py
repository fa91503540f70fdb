"""The connections to NATS servers, for its source and sink: addresses, options, subjects, and remedies for errors."""
