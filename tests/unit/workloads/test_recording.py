"""Histograms: what clients have encoded is decoded, whatever its size."""

import pytest
from hdrh.histogram import HdrHistogram

from microshard.workloads import recording

# Written by a JVM: the histogram had grown beyond the highest value its header says.
GROWN = (
    "HISTFAAAAUh42i2QP0sDURDEb3+XP4SgEo5whDOkOERCiiAiVhJEjiAiImKRUixERESsrCzUwlKCiEgQ62AlQSxSWfgJrC0kWAn6"
    "Cc45z3scb3d2dnbeTp51PcexKyf93P/b0iyOW98pMBgnYJkTVmCaHornuDYiBiZgjyxbTFASsMtFApVEmGUExYyntIYvjk8zE1Jk"
    "jYoKOpFYh7Q5YIxNxW1eTDOa0i+IVePS+DHFZdy/BhdH8ZNpWFX8bd0hQ6NrNFQsqOXZuDENS3ycIs8hHcE7Ki8yT11OHWEz9BH/"
    "PpGKhGcZmQq9XNLX4lhj9uXK49MYIokuvBmvJheBYE89SxIIWGCDc5eHxLlkj7g1WRsgR2WtpirVd0NaDW0lWUZdf0F2lHT4yGsZ"
    "FWWPOcF3xqoGxC7rqgbahENebUWm1OLLqau3fBn9PL9LrDg8"
)


def test_a_histogram_that_grew_while_it_was_recorded_is_read_whole() -> None:
    with pytest.raises(IndexError):
        HdrHistogram.decode(GROWN)
    histogram = recording.decode(GROWN)
    assert histogram.get_total_count() == sum(
        item.count_at_value_iterated_to for item in histogram.get_recorded_iterator()
    )
    assert histogram.get_max_value() > 0


def test_what_is_no_histogram_is_an_error_and_no_traceback() -> None:
    short = recording.encode(recording.merge([]))[:-8]
    for text in ("rubbish!", "HISTFAAAAAA=", short):
        with pytest.raises(ValueError, match="a histogram cannot be read"):
            recording.decode(text)
