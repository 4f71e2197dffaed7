"""What the operator sets: `CRUISE_*` environment over a TOML file over defaults, read once at the edge.

`forms` reads single values, `choices` those of a few values, `table` has every setting with its default, `loading`
joins the sources.
"""

from cruise.settings.loading import load_settings
from cruise.settings.settings import Settings

__all__ = ["Settings", "load_settings"]
