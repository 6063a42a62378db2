"""Association policies, one per file: they decide the gateway of each device (Eq. 11)."""
