"""Selection policies, one per file: they decide the idle devices that a gateway triggers now (Eq. 10)."""
