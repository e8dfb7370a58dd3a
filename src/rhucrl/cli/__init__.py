"""The command line, one thin function per command."""
