"""Who is who: names, certificates, and the check that every call passes."""
