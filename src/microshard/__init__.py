"""microshard: a laboratory for MongoDB micro-sharding experiments."""

from importlib.metadata import version

__version__ = version("microshard")
