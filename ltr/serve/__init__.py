"""`ltr serve`: an HTTP service that ranks with an exported model. Serving does not need torch."""

from ltr.serve.app import Limits, make_app

__all__ = ["Limits", "make_app"]
