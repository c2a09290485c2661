"""Seeing policies move: replays for the browser, videos, and a live view."""
