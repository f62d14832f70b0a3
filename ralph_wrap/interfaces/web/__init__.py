"""A local page on which branches are reviewed, landed and dropped, and sessions watched and stopped.

Importing ``server`` or ``static_report`` needs the extra ``web``.
"""
