"""The composition root: settings in, nodes, networks, learners, runs and deployments out."""
