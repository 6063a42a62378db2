"""Checks of composed settings: each raises SettingsError with the place of the setting and the remedy."""
