"""Django's cache and its sessions in Holdfast, without asyncio.

A missing package is reported here, before the modules of this folder are imported.
"""

from holdfast.extras import imported

with imported("django", "holdfast.integrations.django"):
    import django as _django  # noqa: F401 - fails here if the package is missing

from holdfast.integrations.django.cache import HoldfastCache

__all__ = ["HoldfastCache"]
