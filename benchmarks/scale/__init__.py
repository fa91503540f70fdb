"""The benchmark of the control plane and of determinants as a job grows."""
