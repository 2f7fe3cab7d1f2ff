"""Which version this is."""

__all__ = ["tenure_version"]


def tenure_version() -> str:
    """As installed; "not installed" where it runs from its folder alone."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tenure")
    except PackageNotFoundError:
        return "not installed"
