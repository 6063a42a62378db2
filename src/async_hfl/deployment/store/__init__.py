"""The state directory of a deployed node: log, snapshots, journal, and the models that they refer to."""
