"""One file per command: a dataclass whose fields are its flags and whose docstring is its help.

A command is imported when it is called, and imports what is slow only once its arguments are sound, so that help and
mistakes are answered at once.
"""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells."""
PREEMPTED = 75
"""Exit code after SIGTERM or SIGUSR1, once everything is saved: EX_TEMPFAIL of sysexits.h, to be started again."""
