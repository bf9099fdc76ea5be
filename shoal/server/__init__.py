"""The HTTP API, the live streams, sign-in, and the pages."""
