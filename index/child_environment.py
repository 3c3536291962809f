"""The environment of child processes that read what strangers made: none of the user's keys."""

from __future__ import annotations

import os

# What Python and its libraries need to start, to find files and to name characters. A list of what
# is passed on, as nobody can list all names of keys.
PASSED_ON = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP",
    "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH",
    "PYTHONHOME", "PYTHONPATH", "PYTHONHASHSEED", "PYTHONUTF8", "PYTHONDONTWRITEBYTECODE",
    "PYTHONPYCACHEPREFIX", "VIRTUAL_ENV", "CONDA_PREFIX",
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS",
    "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "USERPROFILE", "APPDATA",
    "LOCALAPPDATA", "PROGRAMDATA", "NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE",
})  # fmt: skip
LOCALE = "LC_"  # the start of a locale's other variables


def child_environment() -> dict[str, str]:
    """Return the variables that such a process gets."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.upper() in PASSED_ON or name.startswith(LOCALE)
    }
