"""Multi-host jobs: the commands for their hosts, and the supervisors that may lead them."""
