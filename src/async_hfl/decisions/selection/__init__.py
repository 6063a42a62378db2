"""Selection policies, one a file: which of its idle devices does a gateway trigger now? (Eq. 10)"""
