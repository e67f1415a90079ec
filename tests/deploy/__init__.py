"""The files below `deploy`: they say what the settings and the service understand."""
