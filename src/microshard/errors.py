"""What the command line says when something goes wrong, and the exit code it ends with."""

EXIT_OK = 0
EXIT_BUG = 1  # an unexpected error: please report it
EXIT_DEFINITION = 2  # the experiment file or the command line is wrong
EXIT_FAILED = 3  # a point failed, gave another answer or was beyond the budget; the other results are there
EXIT_PLACE = 4  # this machine cannot do it: binary, RAM, disk, ports, permissions
EXIT_LEFT = 5  # something of the run could not be removed; it is listed
EXIT_WORSE = 6  # compare: a run is worse than the first one beyond the tolerance
EXIT_NOT_COMPARABLE = 7  # compare: runs over other data, or of another query
EXIT_INTERRUPTED = 130  # Ctrl-C (SIGTERM: 143, SIGHUP: 129); everything was torn down


class MicroshardError(Exception):
    """An error for people: what happened, where, and what to do next."""

    exit_code = EXIT_FAILED


class PlaceError(MicroshardError):
    """This machine cannot run the experiment."""

    exit_code = EXIT_PLACE


class RunFolderError(MicroshardError):
    """A folder that is not a run of microshard, or one that cannot be written."""

    exit_code = EXIT_PLACE
