"""Volumes of a host: devices, filesystems, arrays, mounts, readahead."""
