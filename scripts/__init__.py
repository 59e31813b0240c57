"""launchgap's executables: each parses arguments, calls a library and writes files. Nothing imports them."""
