"""The same command gives the same run, bit by bit; another seed gives a different one."""

from __future__ import annotations

from pathlib import Path

from command_line import Call, command

from async_hfl.journal.events_file import EventsWriter
from async_hfl.journal.run_directory import RunDirectory

DIGITS = ("--task", "digits", "--method", "async-hfl", "--network", "nycmesh-paper")
SHORT = (*DIGITS, "--set", "cloud.epochs=12")


def test_the_same_command_twice_another_seed_and_no_batching(call: Call) -> None:
    first = call("run", *SHORT, "--seed", "1", "--json").json
    again = call("run", *SHORT, "--seed", "1", "--json").json
    other = call("run", *SHORT, "--seed", "2", "--json").json
    single = call("run", *SHORT, "--seed", "1", "--set", "simulation.batching=off", "--json").json
    own = {"run", "wall_s"}
    assert {key: value for key, value in first.items() if key not in own} == {
        key: value for key, value in again.items() if key not in own
    }
    assert first["digest"] != other["digest"]
    assert first["order_digest"] != other["order_digest"]
    assert (single["digest"], single["order_digest"]) == (first["digest"], first["order_digest"])
    models = [Path(result["run"], "model.safetensors").read_bytes() for result in (first, again, single)]
    assert models[0] == models[1] == models[2]
    curves = [Path(result["run"], "epochs.csv").read_bytes() for result in (first, again, single)]
    assert curves[0] == curves[1] == curves[2]


def test_prefetching_changes_only_the_grouping_of_training_calls(call: Call) -> None:
    due, ahead = (call("run", *SHORT, "--set", f"engine.prefetch={choice}", "--json").json for choice in ("off", "on"))
    assert (due["digest"], due["order_digest"]) == (ahead["digest"], ahead["order_digest"])
    calls = [RunDirectory(Path(result["run"])).read_summary() for result in (due, ahead)]
    assert calls[0] is not None
    assert calls[1] is not None
    assert calls[0]["training"]["calls"] < calls[1]["training"]["calls"]
    models = [Path(result["run"], "model.safetensors").read_bytes() for result in (due, ahead)]
    assert models[0] == models[1]


def test_the_same_command_in_a_new_process(call: Call, tmp_path: Path) -> None:
    arguments = ("run", *DIGITS, "--seed", "1", "--json")
    there = command(*arguments, cwd=tmp_path)
    assert there.code == 0
    assert there.err == ""
    here = call(*arguments)
    assert here.json["digest"] == there.json["digest"]
    assert here.json["order_digest"] == there.json["order_digest"]
    assert there.json["target_reached"] is True


def test_the_number_of_cores_changes_nothing(call: Call, tmp_path: Path) -> None:
    there = command("run", *SHORT, "--json", cwd=tmp_path, env={"ASYNC_HFL_HOST_DEVICES": "1"})
    assert there.json["digest"] == call("run", *SHORT, "--json").json["digest"]


def test_learnt_values_are_in_the_digest_but_not_in_the_order_digest(call: Call) -> None:
    result = call("run", *SHORT, "--json").json
    events = Path(result["run"], "events.jsonl")
    found = digests(events)
    assert found == (result["digest"], result["order_digest"])
    # The third list of an epoch holds its learnt values, whose last digits may differ between machines.
    lines = events.read_text().splitlines(keepends=True)
    places = [place for place, line in enumerate(lines) if line.startswith('["epoch",')]
    assert len(places) >= 2
    head, _, learnt = lines[places[1]].rpartition(",[")
    lines[places[1]] = f"{head},[{learnt.replace('0.', '0.0000001', 1)}"
    events.write_text("".join(lines))
    changed = digests(events)
    assert changed[0] != found[0]
    assert changed[1] == found[1]
    # The time of an epoch is not a learnt value.
    lines[places[1]] = lines[places[1]].replace('["epoch",[', '["epoch",[1', 1)
    events.write_text("".join(lines))
    assert digests(events)[1] != found[1]


def digests(events: Path) -> tuple[str, str]:
    writer = EventsWriter(events)
    found = writer.digests()
    writer.close()
    return found
