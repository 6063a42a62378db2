"""The file of pairs for `network path-loss`."""

from __future__ import annotations

from pathlib import Path

import pytest

from async_hfl.core.errors import DataError
from async_hfl.network.radio.pair_losses import loss_lines, pair_losses, read_pairs
from async_hfl.network.radio.propagation.surroundings import Surroundings

HEADER = "device_x_m,device_y_m,device_z_m,gateway_z_m\n"


def written(folder: Path, text: str) -> Path:
    file = folder / "pairs.csv"
    file.write_text(text)
    return file


def test_names_comments_and_other_columns(tmp_path: Path) -> None:
    header = "# a\n\ngateway_z_m, pair ,device_z_m,colour,device_x_m,device_y_m\n"
    text = header + '30,roof,12,red,3,4\n # b\n31,"a,b",12,blue,6,8\n'
    pairs = read_pairs(written(tmp_path, text))
    assert pairs.names == ["roof", "a,b"]
    assert (pairs.device_x.tolist(), pairs.device_y.tolist()) == ([3.0, 6.0], [4.0, 8.0])
    assert (pairs.device_z.tolist(), pairs.gateway_z.tolist()) == ([12.0, 12.0], [30.0, 31.0])
    lines = list(loss_lines(pairs, pair_losses(pairs, Surroundings())))
    assert lines[0] == "pair,path_loss_db"
    assert lines[1].startswith("roof,")
    assert lines[2].startswith('"a,b",')


def test_rows_without_names_count_from_0(tmp_path: Path) -> None:
    pairs = read_pairs(written(tmp_path, HEADER + "1,2,3,4\n2,3,4,5\n"))
    assert pairs.names == ["0", "1"]


def test_no_pairs_are_no_losses(tmp_path: Path) -> None:
    pairs = read_pairs(written(tmp_path, HEADER))
    assert list(loss_lines(pairs, pair_losses(pairs, Surroundings()))) == ["pair,path_loss_db"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("# only\n", "holds nothing but comments"),
        ("device_x_m,device_y_m,device_z_m\n1,2,3\n", "has no column 'gateway_z_m'; it needs device_x_m"),
        ("device_x_m," + HEADER, "two columns are called 'device_x_m'"),
        (HEADER + '1,2,3,4\n"1,2,3,4\n', "line 3: not CSV"),
        (HEADER + "1,2,3\n", "line 2: 3 cells, but its first line names 4 columns"),
        (HEADER + "# c\n1,2,3,4\n1,two,3,4\n", "line 4: device_y_m is 'two', which is not a number"),
        (HEADER + "1,,3,4\n", "line 2: device_y_m is '', which is not a number"),
        (HEADER + "1,nan,3,4\n", "line 2: device_y_m is nan; it must be a number that is finite"),
        (HEADER + "inf,1,3,4\n", "line 2: device_x_m is inf; it must be a number that is finite"),
        (HEADER + "1,2,0,4\n", "line 2: a height is not above the ground"),
        (HEADER + "1,2,3,4\n1,2,3,-4\n", "line 3: a height is not above the ground"),
        (HEADER + "5,5,5,5\n0,0,7,7\n", "line 3: the device is where the gateway is"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_pairs(written(tmp_path, text))


def test_invalid_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file; give a CSV file of pairs"):
        read_pairs(tmp_path / "none.csv")
    with pytest.raises(DataError, match="cannot be read"):
        read_pairs(tmp_path)
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(DataError, match="not text in UTF-8"):
        read_pairs(binary)
