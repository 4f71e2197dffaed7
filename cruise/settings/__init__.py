"""Settings of the operator: `CRUISE_*` environment over a TOML file over defaults, read once at startup.

`value_types` parses values; `decisions` and `connections` have the settings with defaults and descriptions;
`settings` has all of them; `loading` joins the sources.
"""

from cruise.settings.loading import load_settings
from cruise.settings.settings import Settings

__all__ = ["Settings", "load_settings"]
