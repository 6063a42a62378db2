"""Every mistake of the user ends in a short message that names the place and the remedy, and in exit code 2."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from command_line import HANG_GUARD_S, PROGRAM, SMALL, Call, Outcome, command
from safetensors.numpy import save_file

from async_hfl.journal.run_directory import RunDirectory

SETTINGS = {
    "unknown section": ("gatway.epochs=3", "unknown section 'gatway' in --set gatway.epochs=3; did you mean gateway?"),
    "unknown key": (
        "gateway.epoch=3",
        "unknown setting gateway.epoch in --set gateway.epoch=3; did you mean gateway.ep",
    ),
    "key unlike any": ("simulation.zzz=3", "there are: simulation.batching, simulation.checkpoint_epochs"),
    "text for a number": (
        "gateway.epochs=three",
        "gateway.epochs = 'three' (--set gateway.epochs=three): must be a wh",
    ),
    "fraction for a whole number": ("gateway.epochs=2.5", "gateway.epochs = 2.5"),
    "nothing for a number": ("gateway.epochs=", "must be a whole number >= 1"),
    "truth for a number": ("gateway.epochs=true", "gateway.epochs = True"),
    "text for a truth": (
        "warmup.enabled=maybe",
        "warmup.enabled = 'maybe' (--set warmup.enabled=maybe): must be true or",
    ),
    "table for a number": ("gateway.epochs={a=1}", "must be a whole number >= 1"),
    "not a choice": ("cloud.delivery=post", "must be one of 'broadcast', 'reply'"),
    "neither number nor auto": ("gateway.max_staleness=never", "must be a whole number >= 1 or 'auto'"),
    "negative weight": (
        "gateway.mixing_weight=-0.5",
        "gateway.mixing_weight = -0.5 (--set gateway.mixing_weight=-0.5): m",
    ),
    "weight above one": ("cloud.mixing_weight=1.5", "must be a number > 0 and <= 1"),
    "weight not a number": ("cloud.mixing_weight=nan", "must be a number > 0 and <= 1"),
    "infinite": ("warmup.limit=inf", "warmup.limit = inf (--set warmup.limit=inf): must be a finite number"),
    "momentum of one": ("device.momentum=1", "must be a number >= 0 and < 1"),
    "zero epochs": ("cloud.epochs=0", "must be a whole number >= 1"),
    "bandwidth in words": (
        "gateway.bandwidth=fast",
        "'fast' is neither bytes per second (20000) nor a share of the dem",
    ),
    "bandwidth of nothing": ("gateway.bandwidth=0%", "gateway.bandwidth: '0%' is neither"),
    "negative bandwidth": ("gateway.bandwidth=-3", "gateway.bandwidth = -3"),
    "no equals sign": ("gateway.epochs", "--set gateway.epochs: write it as section.key=value, for example"),
    "no section": ("epochs=3", "--set epochs=3: write it as section.key=value"),
    "too deep": ("gateway.epochs.most=3", "gateway.epochs = {'most': 3} (--set gateway.epochs.most=3): must be"),
    "far too deep": ("cloud.start.devices.most=3", "write it as section.key=value"),
    "task by its setting": (
        "task.name=null",
        "task.name = 'null' (--set task.name=null): the task is digits; choose anot",
    ),
    "rates upside down": ("network.min_rate=2e6", "network.min_rate = 2000000.0 is above network.max_rate: swap them"),
    "a period without periods": (
        "gateway.period=50",
        "gateway.period (--set gateway.period=50): has no effect with gateway.aggregation = 'mix'; leave it out",
    ),
    "a table without fixed": ("association.file=x.csv", "has no effect with association.policy = 'balanced-utility'"),
    "no devices": ("task.devices=0", "task.devices = 0 (--set task.devices=0): must be a whole number >= 1"),
    "no gateways": ("network.gateways=0", "network.gateways = 0"),
    "more devices than sites": ("task.devices=500", "500 were asked for (1..184 are possible)"),
    "more gateways than there are": ("network.gateways=7", "nycmesh-paper has 6 gateways; 7 were asked for"),
    "unknown rule of gateways": (
        "gateway.aggregation=sum",
        "there is mix, relay, periods, buffer, rounds, or FILE.py:CLASS of your own",
    ),
    "unknown rule of the cloud": ("cloud.aggregation=sum", "there is mix, average, or FILE.py:CLASS of your own"),
    "unknown policy": ("selection.policy=greedy", "there is utility-knapsack, random, high-loss,"),
    "unknown association": (
        "association.policy=near",
        "association.policy = 'near': there is balanced-utility, random, re-clustering, even, nearest, fixed, or FILE",
    ),
    "fixed without a file": ("association.policy=fixed", "needs association.file: CSV with device,gateway, or JSON"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_wrong_setting(name: str, call: Call) -> None:
    setting, what = SETTINGS[name]
    done = call("run", "--method", "async-hfl", "--set", setting)
    assert done.code == 2
    assert what in done.told()
    assert done.out == ""
    assert not Path("runs").exists()


FILES = {
    "malformed": ("[gateway", "mine.toml: not valid TOML: Expected ']'"),
    "not text": (b"\xff\xfe\x00", "mine.toml: cannot be read ('utf-8' codec"),
    "unknown section": ("[gatewy]\nepochs = 3\n", "unknown section 'gatewy' in mine.toml; did you mean gateway?"),
    "unknown key": ("[cloud]\nepoch = 3\n", "unknown setting cloud.epoch in mine.toml; did you mean cloud.epochs?"),
    "no table": ("gateway = 3\n", "gateway in mine.toml must be a table of settings, not 3"),
    "run no table": ("run = 3\n", "mine.toml: run must be a table, [run]"),
    "unknown choice": (
        "[run]\nmethd = 'async-hfl'\n",
        "unknown setting run.methd in mine.toml; did you mean run.method?",
    ),
    "wrong seed": ("[run]\nseed = 'one'\n", "run.seed = 'one' (mine.toml): must be a whole number"),
    "unknown method": ("[run]\nmethod = 'fedavg'\n", "unknown method 'fedavg'"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_wrong_run_file(name: str, call: Call) -> None:
    text, what = FILES[name]
    Path("mine.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    done = call("run", "mine.toml")
    assert done.code == 2
    assert what in done.told()


ARGUMENTS = {
    "missing run file": (["run", "none.toml"], "none.toml: no such file; give the path of a run file, or leave it out"),
    "unknown method": (["run", "--method", "async-hf"], "did you mean async-hfl?; `async-hfl methods` lists them all"),
    "unknown task": (["run", "--task", "digit"], "unknown task 'digit'; did you mean digits?; `async-hfl tasks` lists"),
    "unknown network": (["run", "--network", "moon"], "random-geometric, uniform; `async-hfl networks` lists"),
    "unknown preset": (["run", "--preset", "papr"], "did you mean paper?; `async-hfl presets` lists them all"),
    "negative seed": (["run", "--seed", "-1"], "seed -1: must be a whole number from 0 to 2^63 - 1"),
    "huge seed": (["run", "--seed", str(2**63)], "must be a whole number from 0 to 2^63 - 1"),
    "seed in words": (
        ["run", "--seed", "one"],
        "argument --seed: invalid int value: 'one'; see `async-hfl run --help`",
    ),
    "unknown option": (
        ["run", "--sed", "1"],
        "run: error: unknown argument: --sed; did you mean --seed? See `async-hfl run --help`",
    ),
    "too many links": (
        ["run", "--network", "uniform", "--set", "network.links_per_device=99"],
        "99 links per device with 6 gateways",
    ),
    "more devices than samples": (
        ["run", "--network", "uniform", "--set", "task.devices=5000"],
        "1437 training samples are too few for so many devices; use fewer devices",
    ),
    "rule file missing": (["run", "--set", "gateway.aggregation=no.py:Rule"], "there is no file no.py"),
    "rule without class": (["run", "--set", "cloud.aggregation=no.py"], "write it as FILE.py:CLASS"),
    "unknown rule under faults": (["fuzz-faults", "--cloud-rule", "sum"], "there is mix, average, or FILE.py:CLASS"),
    "policy file missing": (["run", "--set", "selection.policy=no.py:choose"], "there is no file no.py"),
    "policy without function": (["run", "--set", "selection.policy=no.py"], "write it as FILE.py:FUNCTION"),
    "resume of nothing": (
        ["resume", "nothing"],
        "nothing: not a run directory (no manifest.json); `async-hfl run` make",
    ),
    "show of nothing": (["show", "nothing"], "nothing: not a run directory"),
    "model of nothing": (["model", "nothing", "out.safetensors"], "nothing: not a run directory"),
    "resume without a run": (["resume"], "required: RUN; see `async-hfl resume --help`"),
    "model to start from missing": (
        ["run", "--start-from", "none.safetensors"],
        "none.safetensors: no such file; `async-hfl model RUN OUT.safetensors` makes one",
    ),
    "no scenarios": (["fuzz-faults", "--seeds", "0"], "--seeds must be at least 1"),
    "no processes": (["fuzz-faults", "--seeds", "1", "--processes", "0"], "--processes must be at least 1"),
    "bench of nothing": (["bench"], "required: WHAT"),
    "misspelt command": (["rnu"], "there is no command 'rnu'; did you mean run?"),
    "misspelt subcommand": (["data", "fetsch"], "there is no command 'fetsch'; did you mean fetch?"),
    "no such command": (["zzzz"], "there is no command 'zzzz'; see `async-hfl --help`"),
    "misspelt option": (["run", "--metod=async-hfl"], "unknown argument: --metod=async-hfl; did you mean --method?"),
    "misspelt option alone": (["--versoin"], "unknown argument: --versoin; did you mean --version?"),
    "no such option": (["run", "--zzzz"], "unknown argument: --zzzz; see `async-hfl run --help`"),
    "demo with a wrong seed": (["demo", "--seed", "-1"], "seed -1: must be a whole number"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_wrong_arguments(name: str, call: Call) -> None:
    arguments, what = ARGUMENTS[name]
    done = call(*arguments)
    assert done.code == 2
    assert what in done.told()
    assert done.out == ""
    assert not Path("runs").exists()


POLICIES = {
    "raises on load": (
        "limit = 3\nshare = limit / 0\n",
        "selection.policy: mine.py failed while loading: ZeroDivision",
    ),
    "says where": ("limit = 3\nshare = limit / 0\n", "ZeroDivisionError: division by zero (line 2)"),
    "not Python": ("def choose(:\n", "SyntaxError: invalid syntax (mine.py, line 1)"),
    "leaves on load": ("raise SystemExit(0)\n", "mine.py failed while loading: SystemExit: 0 (line 1)"),
    "no such function": (
        "def chose(problem):\n    return []\n",
        "selection.policy: mine.py has no function 'choose'; it has: chose",
    ),
    "not a function": ("choose = 3\n", "mine.py has no function 'choose'; it has: none"),
    "raises while choosing": (
        "def choose(problem):\n    return [problem.speed]\n",
        "raised AttributeError: 'SelectionProblem' object has no attribute 'speed' (line 2 of ",
    ),
    "leaves while choosing": ("def choose(problem):\n    raise SystemExit(3)\n", "raised SystemExit: 3 (line 2 of "),
    "not a candidate": ("def choose(problem):\n    return [999]\n", "chose device 999, which is not a candidate"),
    "beyond the bandwidth": (
        "def choose(problem):\n    return problem.candidates\n",
        "keep the sum of problem.data_rate within problem.capacity",
    ),
    "nothing returned": ("def choose(problem):\n    pass\n", "returned None; return device numbers out of"),
    "unknown need": (
        "def choose(problem):\n    return []\nchoose.needs = {'losses'}\n",
        "it needs 'losses', which is not one of utility, gradients",
    ),
}


@pytest.mark.parametrize("name", POLICIES)
def test_a_wrong_policy(name: str, call: Call) -> None:
    text, what = POLICIES[name]
    Path("mine.py").write_text(text)
    done = call("run", *SMALL, "--method", "async-hfl", "--set", "selection.policy=mine.py:choose")
    assert done.code == 2
    assert what in done.told()
    assert done.out == ""


def test_an_error_in_an_association_policy(call: Call) -> None:
    Path("mine.py").write_text("def solve(problem):\n    return {0: 99}\n")
    done = call("run", *SMALL, "--set", "association.policy=mine.py:solve")
    assert done.code == 2
    assert "association policy mine.py:solve: puts device 0 at gateway 99, to which it has no link" in done.told()


def test_an_error_in_an_aggregation_rule(call: Call) -> None:
    Path("mine.py").write_text(
        "from async_hfl.nodes.gateway.aggregation.rule import GatewayAggregation\n"
        "class Mine(GatewayAggregation):\n"
        "    def received(self, gateway, held, at):\n"
        "        gateway.drop_stale(held, at, staleness=1)\n"
    )
    done = call("run", *SMALL, "--set", "gateway.aggregation=mine.py:Mine")
    assert done.code == 2
    assert "mine.py:Mine.received returned None; it must return a Next" in done.told()
    done = call("run", *SMALL, "--set", "cloud.aggregation=mine.py:Mine")
    assert done.code == 2
    assert "cloud.aggregation: mine.py:Mine must be a subclass of" in done.told()


def test_a_long_message_is_shortened(call: Call) -> None:
    Path("mine.py").write_text("def choose(problem):\n    raise ValueError('\\n'.join('many lines'))\n")
    done = call("run", *SMALL, "--set", "selection.policy=mine.py:choose", "--json")
    assert done.code == 2
    assert len(done.err.splitlines()) == 6


def test_out_must_be_empty(call: Call) -> None:
    Path("taken").mkdir()
    Path("taken/thesis.txt").write_text("years of work")
    done = call("run", *SMALL, "--out", "taken")
    assert done.code == 2
    assert "taken: not empty; give another --out, or `async-hfl resume taken`" in done.told()
    assert [entry.name for entry in Path("taken").iterdir()] == ["thesis.txt"]


def test_out_that_cannot_be_created(call: Call) -> None:
    Path("file").write_text("")
    for out, why in (("file", "File exists"), ("file/below", "Not a directory")):
        done = call("run", *SMALL, "--out", out)
        assert done.code == 2
        assert f"{out}: cannot be created ({why}); give another --out" in done.told()


def test_the_demo_removes_only_files_of_a_demo(call: Call) -> None:
    """`async-hfl demo --out .` must not remove a folder that has the name of a method by chance."""
    Path("async-hfl").mkdir()
    Path("async-hfl/README.md").write_text("my checkout")
    done = call("demo", "--out", ".")
    assert done.code == 2
    assert ".: contains other files (async-hfl); give another --out" in done.told()
    assert Path("async-hfl/README.md").read_text() == "my checkout"
    Path("file").write_text("")
    assert "file: contains other files (file)" in call("demo", "--out", "file").told()


def test_a_full_disk(call: Call, tmp_path: Path) -> None:
    """A limit on the size of files stands for the end of the disk."""
    many = ("task.devices=8", "cloud.epochs=40", "simulation.checkpoint_epochs=1")
    arguments = [*SMALL, *(part for text in many for part in ("--set", text))]
    assert call("run", *arguments, "--out", "whole").code == 0
    room = Path("whole/events.jsonl").stat().st_size // 1024 * 3 // 4
    limited = ["bash", "-c", f'ulimit -f {room}; exec "$@"', "bash", PROGRAM, "run", *arguments, "--out", "my run"]
    found = subprocess.run(limited, capture_output=True, text=True, timeout=HANG_GUARD_S, check=False)
    assert found.returncode == 2, found.stderr
    text = Outcome(found.returncode, found.stdout, found.stderr).told()
    assert "my run: no room to write (File too large); free some space, then `async-hfl resume 'my run'`" in text
    assert call("resume", "my run", "--json").json["digest"] == call("show", "whole", "--json").json["digest"]


def test_a_run_that_is_not_complete(call: Call) -> None:
    assert call("run", *SMALL, "--out", "cut").code == 0
    Path("cut/summary.json").unlink()
    done = call("show", "cut")
    assert done.code == 2
    assert "cut: not complete; `async-hfl resume cut` continues it" in done.told()
    Path("cut/model.safetensors").unlink()
    done = call("model", "cut", "out.safetensors")
    assert done.code == 2
    assert "cut: no model yet; the first checkpoint writes it" in done.told()


MANIFESTS = {
    "not JSON": ("{", "manifest.json: cannot be read (Expecting property name"),
    "not an object": ("[1]", "manifest.json: not a JSON object"),
    "somebody else's": ('{"name": "my web page"}', "written in format None; this version reads format 3"),
    "of another version": ('{"format": 99}', "written in format 99; this version reads format 3"),
    "cut down": ('{"format": 3, "task": "null"}', "manifest.json: has no 'method', so it was not written by async-hfl"),
}


@pytest.mark.parametrize("name", MANIFESTS)
@pytest.mark.parametrize("action", ["resume", "show"])
def test_a_directory_that_is_not_a_run(name: str, action: str, call: Call) -> None:
    text, what = MANIFESTS[name]
    Path("page").mkdir()
    Path("page/manifest.json").write_text(text)
    done = call(action, "page")
    assert done.code == 2
    assert what in done.told()


def test_a_manifest_with_invalid_settings(call: Call) -> None:
    assert call("run", *SMALL, "--out", "old").code == 0
    Path("old/summary.json").unlink()
    manifest = json.loads(Path("old/manifest.json").read_text())
    manifest["settings"]["gateway"]["epochs"] = -3
    Path("old/manifest.json").write_text(json.dumps(manifest))
    assert "gateway.epochs = -3 (the manifest): must be a whole number >= 1" in call("resume", "old").told()
    manifest["versions"]["jax"] = "0.0.1"
    manifest["settings"]["gateway"]["epochs"] = 3
    Path("old/manifest.json").write_text(json.dumps(manifest))
    done = call("resume", "old")
    assert done.code == 2
    assert "the run began with other versions" in done.told()
    assert "install those first" in done.told()


@pytest.mark.parametrize("damage", ["first byte", "middle", "last byte", "cut", "emptied", "something else"])
def test_resume_from_a_damaged_checkpoint(damage: str, call: Call) -> None:
    done = call("run", *SMALL, "--set", "task.devices=5", "--set", "simulation.checkpoint_epochs=1", "--out", "hurt")
    assert done.code == 0
    path = Path("hurt/checkpoint.msgpack")
    Path("hurt/summary.json").unlink()
    data = bytearray(path.read_bytes())
    if damage in ("first byte", "middle", "last byte"):
        data[{"first byte": 0, "middle": len(data) // 2, "last byte": -1}[damage]] ^= 1
    path.write_bytes({"cut": data[: len(data) // 2], "emptied": b"", "something else": b"PK" * 99}.get(damage, data))
    done = call("resume", "hurt")
    assert done.code == 2
    assert "hurt/checkpoint.msgpack: " in done.told()
    assert "delete it to begin the run again" in done.told()
    path.unlink()
    assert call("resume", "hurt").code == 0


@pytest.mark.parametrize("name", ["events.jsonl", "epochs.csv"])
def test_resume_with_a_journal_that_is_too_short(name: str, call: Call) -> None:
    done = call("run", *SMALL, "--set", "task.devices=5", "--set", "simulation.checkpoint_epochs=1", "--out", "hurt")
    assert done.code == 0
    Path("hurt/summary.json").unlink()
    path = Path("hurt") / name
    path.write_bytes(path.read_bytes()[:40])
    done = call("resume", "hurt")
    assert done.code == 2
    assert f"hurt/{name}: shorter than its checkpoint says" in done.told()
    path.unlink()
    assert call("resume", "hurt").code == 2


def test_a_damaged_line_of_the_journal(call: Call) -> None:
    done = call("run", *SMALL, "--set", "task.devices=5", "--set", "simulation.checkpoint_epochs=1", "--out", "hurt")
    assert done.code == 0
    Path("hurt/summary.json").unlink()
    path = Path("hurt/events.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = b"?" + lines[2][1:]
    path.write_bytes(b"".join(lines))
    done = call("resume", "hurt")
    assert done.code == 2
    assert "hurt/events.jsonl, line 3: not a journal line" in done.told()


MODEL_SIZE = 16
MODELS = {
    "NaN": ({"noise": np.full(MODEL_SIZE, np.nan, np.float32)}, "array 'noise' holds NaN or infinite values"),
    "too large": ({"noise": np.full(MODEL_SIZE, 1e300)}, "array 'noise' holds NaN or infinite values"),
    "wrong shape": ({"noise": np.zeros(3, np.float32)}, "array 'noise' has shape (3,), this task's model wants (16,)"),
    "wrong names": ({"sound": np.zeros(MODEL_SIZE, np.float32)}, "arrays missing: ['noise']; unknown: ['sound']"),
    "empty": ({}, "arrays missing: ['noise']"),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_start_model_that_does_not_fit(name: str, call: Call) -> None:
    arrays, what = MODELS[name]
    save_file(arrays, "start.safetensors")
    done = call("run", *SMALL, "--start-from", "start.safetensors")
    assert done.code == 2
    assert "start.safetensors: " in done.told()
    assert what in done.told()


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x10\x00\x00\x00\x00\x00\x00\x00{}", None])
def test_a_start_file_that_is_not_a_model(content: bytes | None, call: Call) -> None:
    path = Path("start.safetensors")
    path.mkdir() if content is None else path.write_bytes(content)
    done = call("run", *SMALL, "--start-from", "start.safetensors")
    assert done.code == 2
    assert "start.safetensors: not a safetensors file" in done.told()


def test_a_start_model_of_a_type_unknown_to_numpy(call: Call) -> None:
    header = b'{"noise":{"dtype":"F8_E4M3","shape":[16],"data_offsets":[0,16]}}'
    Path("start.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))
    done = call("run", *SMALL, "--start-from", "start.safetensors")
    assert done.code == 2
    assert "store the arrays as float32" in done.told()


def test_a_model_copied_to_a_missing_directory(call: Call) -> None:
    assert call("run", *SMALL, "--out", "done").code == 0
    done = call("model", "done", "model.npz")
    assert done.code == 2
    assert "model.npz: the name of the file must end in .safetensors" in done.told()
    done = call("model", "done", "no/such/model.safetensors")
    assert done.code == 2
    assert "cannot be written (No such file or directory); give a file in a directory that exists" in done.told()
    done = call("model", "done", "done/model.safetensors")
    assert done.code == 2
    assert "are the same file" in done.told()


def test_mistakes_in_a_new_process(tmp_path: Path) -> None:
    """Also there, no log or warning of a library precedes the message."""
    (tmp_path / "mine.py").write_text("def choose(problem):\n    return problem.candidates\n")
    for arguments, what in (
        (("run", "--set", "gatway.epochs=3"), "unknown section 'gatway'"),
        (
            ("run", "--json", "--method", "async-hfl", "--set", "selection.policy=mine.py:choose"),
            "keep the sum of problem.data_rate within",
        ),
        (("show", "nothing"), "nothing: not a run directory"),
        (("run", "--sed", "1"), "unknown argument: --sed"),
    ):
        done = command(*arguments, cwd=tmp_path)
        assert done.code == 2
        assert done.out == ""
        assert what in done.told()
        assert len(done.err.splitlines()) == 1


def test_more_devices_than_fit_into_memory(call: Call) -> None:
    done = call("run", *SMALL, "--set", f"task.model_size={10**15}")
    assert done.code == 2
    assert "not enough memory (Unable to allocate" in done.told()


class BrokenTerminal(io.StringIO):
    def write(self, text: str) -> int:
        raise RuntimeError("the terminal has burnt down")


def test_an_unexpected_error_is_reported_as_a_fault_of_async_hfl(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", BrokenTerminal())
    done = call("methods")
    assert done.code == 1
    assert done.err.splitlines() == [
        "async-hfl: error: RuntimeError: the terminal has burnt down",
        "This is a fault of async-hfl, not yours; please report it.",
    ]


def test_a_traceback_only_on_request(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASYNC_HFL_TRACEBACK", "1")
    done = call("run", "--set", "gatway.epochs=3")
    assert done.code == 2
    assert done.err.startswith("Traceback")


def test_training_that_diverges_everywhere_ends_with_a_remedy(call: Call) -> None:
    done = call("run", "--set", "device.learning_rate=50")
    assert done.code == 2
    assert "training diverges" in done.err
    assert "lower the learning rate (device.learning_rate" in done.err


def test_training_that_diverges_within_a_time_limit_is_a_result(call: Call) -> None:
    """It costs the whole time, as a comparison or a tuning has to count it."""
    limit = ("--set", "cloud.time_limit=5000", "--set", "cloud.epochs=100000")
    done = call("run", "--set", "device.learning_rate=50", *limit, "--json")
    assert done.code == 0
    assert not done.json["target_reached"]
    assert done.json["virtual_s"] == pytest.approx(5_000.0)
    summary = RunDirectory.open(Path(done.json["run"])).read_summary()
    assert summary is not None
    assert "lower the learning rate (device.learning_rate" in summary["diverged"]
    shown = call("show", done.json["run"])
    assert "training diverges" in shown.out


def test_a_run_is_written_by_one_process_at_a_time(call: Call, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    assert call("run", *SMALL, "--out", str(cut)).code == 0
    (cut / "summary.json").unlink()
    with RunDirectory(cut).locked():
        done = call("resume", str(cut))
    assert done.code == 2
    assert "another process is writing to this run" in done.told()
    assert call("resume", str(cut)).code == 0


def test_a_journal_changed_during_the_run_is_noticed(call: Call, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    many = [*SMALL, "--set", "cloud.epochs=40", "--set", "simulation.checkpoint_epochs=1"]
    assert call("run", *many, "--out", str(cut)).code == 0
    (cut / "summary.json").unlink()
    events = cut / "events.jsonl"
    events.write_bytes(events.read_bytes().replace(b'"Train"', b'"Traim"', 1))
    done = call("resume", str(cut))
    assert done.code == 2
    assert "changed since its checkpoint" in done.told()
