"""Messages as bytes: what a deployment sends and a simulation counts. No I/O; no pickle."""
