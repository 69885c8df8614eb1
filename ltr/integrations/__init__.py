"""Losses, metrics and training of this package inside other libraries."""
