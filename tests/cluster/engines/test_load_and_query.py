"""Loading and querying a real mongod through the command."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from microshard.engines import mot
from microshard.engines.mot.columns import field_values
from tests.cluster.engines.conftest import Mongod, RunJob, load, query

pytestmark = pytest.mark.cluster
