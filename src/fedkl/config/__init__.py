"""A run's config and the presets: read, checked, resolved."""
