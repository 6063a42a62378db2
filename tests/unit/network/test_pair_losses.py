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
    assert pairs.lines == [4, 6]
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
        ("", "line 1: there is no column device_x_m"),
        ("# only\n", "there is no column device_x_m"),
        ("device_x_m,device_y_m,device_z_m\n1,2,3\n", "line 1: there is no column gateway_z_m"),
        ("device_x_m," + HEADER, "line 1: there is more than one column device_x_m"),
        (HEADER + '1,2,3,4\n"1,2,3,4\n1,2",3,4\n1,2,3,4\n', "line 3: a quotation mark is not closed"),
        (HEADER + "1,2,3\n", "line 2: 3 values for 4 columns"),
        (HEADER + "# c\n1,2,3,4\n1,two,3,4\n", "line 4: device_y_m = 'two' is not a number"),
        (HEADER + "1,,3,4\n", "line 2: device_y_m = '' is not a number"),
        (HEADER + "1,nan,3,4\n", "line 2: device_y_m = nan must be a finite number"),
        (HEADER + "inf,1,3,4\n", "line 2: device_x_m = inf must be a finite number"),
        (HEADER + "1,2,0,4\n", r"line 2: device_z_m = 0\.0 must be a height above the ground"),
        (HEADER + "1,2,3,-4\n", r"line 2: gateway_z_m = -4\.0 must be a height"),
        (HEADER + "5,5,5,5\n0,0,7,7\n", "line 3: the device is where the gateway is"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_pairs(written(tmp_path, text))


def test_invalid_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such file"):
        read_pairs(tmp_path / "none.csv")
    with pytest.raises(DataError, match="cannot be read as text"):
        read_pairs(tmp_path)
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(DataError, match="cannot be read as text"):
        read_pairs(binary)
