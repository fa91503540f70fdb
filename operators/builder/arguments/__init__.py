"""The arguments of pipelines' methods, checked and made into the options of operators, one module per topic."""
