"""What the engine's threads have the event loop do."""


def resolve(future, value, error):
    """Gives a future its result, unless it was cancelled meanwhile."""
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
