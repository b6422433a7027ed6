"""The messages of the library in the command line's words, and one exit code for one mistake."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from gpuscan import cli
from gpuscan._start import INTERRUPTED
from gpuscan.elements import SCALARS
from gpuscan.errors import AdapterNotFoundError, DeviceLostError, OperatorError, StrategyError, UnsupportedDtypeError
from gpuscan.operators.named_operators import BUILTINS, resolve
from gpuscan.tools.output import SIGNALLED, USAGE_WRONG, WORK_FAILED, exit_code_of
from gpuscan.tools.run_command import in_command_words
from tests.harness.devices import usable_adapters
from tests.tools.command_line import fails, run

pytestmark = pytest.mark.usefixtures("skip_without_adapters")

GPU_COMMANDS = ("shader", "bench", "tune", "matrix")


@pytest.mark.parametrize(
    ("message", "numpy", "translated"),
    [
        ("Pass dtype=np.float32", True, "Pass --dtype float32"),
        ("pass dtype=bool, or other", False, "pass --dtype bool, or other"),
        ("or pass force=True to replace", False, "or pass --force to replace"),
        (
            'Pass dtype=np.float32 to round, or device="numpy" to wait.',
            True,
            "Pass --dtype float32 to round, or --device numpy to wait.",
        ),
        ('Pass dtype=np.float32 to round, or device="numpy" to wait.', False, "Pass --dtype float32 to round."),
        ('install a driver, or ask for device="numpy"', False, "install a driver"),
        ('Leave strategy="auto", or open the device with unsafe=True', False, "Leave --strategy auto"),
        ("use axis=-1 (the last)", True, "use --axis -1 (the last)"),
        ("without axis=; pass one of 0, 1, or x.reshape(-1) to flatten", True, "without --axis; pass one of 0, 1"),
        ("Convert the array with .astype(...) first", True, "Save the array in one of these types"),
        ("it has no float64", False, "it has no float64"),
    ],
)
def test_arguments_become_options(message, numpy, translated):
    assert in_command_words(message, numpy) == translated


@pytest.mark.parametrize("command", GPU_COMMANDS)
def test_numpy_is_refused_by_a_command_for_gpus(capsys, command):
    """Refuse it with the same message in each command."""
    code, err = fails(capsys, command, "--device", "NumPy")
    assert (code, "this command needs a GPU adapter" in err) == (2, True)


@pytest.mark.parametrize(
    "command", ["scan in.npy closed/out.npy --axis 0", "probe --report closed/f.json", "export closed/web"]
)
def test_a_folder_that_this_user_may_not_look_into(files, capsys, monkeypatch, command):
    """Tests may run as root, who may look everywhere."""
    looked_at = Path.stat

    def stat(path, **options):
        if "closed" in path.parts:
            raise PermissionError(13, "Permission denied", str(path))
        return looked_at(path, **options)

    monkeypatch.setattr(Path, "stat", stat)
    code, err = fails(capsys, *command.split())
    assert (code, "cannot be reached by this user" in err, "Errno" in err) == (2, True, False)


@pytest.mark.parametrize(("name", "meant"), [("sum", "add"), ("+", "add"), ("times", "multiply"), ("^", "bitwise_xor")])
def test_other_names_of_operators_are_understood(name, meant):
    with pytest.raises(OperatorError, match=f"did you mean '{meant}'"):
        resolve(name)


@pytest.mark.parametrize("command", ["shader", "bench", "scan in.npy out.npy --axis 0", "export web"])
@pytest.mark.parametrize("options", ["--op bitwise_or --dtype float32", "--op logical_and --dtype int32"])
def test_an_operator_that_does_not_combine_the_dtype(files, capsys, command, options):
    """Exit with the same code in every command, with a message about options."""
    code, err = fails(capsys, *command.split(), *options.split())
    assert code == 2
    assert "np." not in err
    assert "dtype=" not in err


def test_a_dtype_that_the_adapter_lacks(capsys, monkeypatch, files):
    """Suggest NumPy only in a command that runs on it."""

    def refuse(*_, **__):
        raise UnsupportedDtypeError('float64 was asked for. Pass dtype=np.float32, or device="numpy" to run on the CPU')

    monkeypatch.setattr("gpuscan.Device.plan", refuse)
    monkeypatch.setattr("gpuscan.scan", refuse)
    code, err = fails(capsys, "shader", "--dtype", "float64")
    assert (code, "--dtype float32" in err, "numpy" in err) == (2, True, False)
    code, err = fails(capsys, "scan", "in.npy", "out.npy", "--dtype", "float64")
    assert (code, "--dtype float32" in err, "--device numpy" in err) == (2, True, True)


def test_an_adapter_that_the_environment_names_wrongly(files, capsys, monkeypatch):
    """Exit with 2 in every command."""
    monkeypatch.setenv("GPUSCAN_ADAPTER", "radeon 9000")
    for command in ("scan in.npy out.npy --axis 0", "shader", "bench", "tune --reset"):
        code, err = fails(capsys, *command.split())
        assert (code, "radeon 9000" in err, "GPUSCAN_ADAPTER" in err) == (2, True, True)


def test_exit_codes_of_errors(monkeypatch):
    """Exit with 2 after a wrong request, and with 1 after a failure of the work."""
    for name in ("GPUSCAN_ADAPTER", "GPUSCAN_BACKEND"):
        monkeypatch.delenv(name, raising=False)
    assert [exit_code_of(error) for error in (UnsupportedDtypeError(), OperatorError(), StrategyError())] == [2, 2, 2]
    assert [exit_code_of(error) for error in (DeviceLostError(), OSError(), AdapterNotFoundError())] == [1, 1, 1]


@pytest.mark.parametrize("device", ["cpu", "CPU"])
def test_the_device_cpu_is_ambiguous(files, capsys, device):
    """Ask for NumPy or a software adapter by name."""
    code, err = fails(capsys, "scan", "in.npy", "out.npy", "--device", device)
    assert (code, "--device numpy" in err) == (2, True)
    assert all(adapter.summary in err for adapter in usable_adapters())
    code, err = fails(capsys, "shader", "--device", device)
    assert (code, "--device numpy" in err) == (2, False)


def test_bfloat16_without_its_package(capsys, monkeypatch):
    """Say what to install."""
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    code, err = fails(capsys, "shader", "--dtype", "bfloat16")
    assert (code, "pip install ml_dtypes" in err) == (2, True)


def test_matrix_says_which_of_its_arguments_is_wrong(files, capsys):
    """Tell apart a file without --merge, --merge without a file, and another format."""
    assert "only --merge reads files" in fails(capsys, "matrix", "in.npy")[1]
    assert "--merge was given without files" in fails(capsys, "matrix", "--merge")[1]
    code, err = fails(capsys, "matrix", "--merge", "in.npy")
    assert (code, "not a file that `gpuscan matrix --json` wrote" in err) == (2, True)


def test_help_lists_operators_and_dtypes(capsys, monkeypatch):
    """List every operator and element type that the command takes, and no other."""
    monkeypatch.setenv("COLUMNS", "200")
    refused = {"scan": {"bfloat16"}, "export": {"float64"}}
    for command in ("scan", "shader", "bench", "export"):
        text = run(capsys, command, "--help")[1].replace("with --compact alone float64", "")
        words = set(re.findall(r"\w+", text))
        assert set(BUILTINS) <= words, command
        assert words & set(SCALARS) == set(SCALARS) - refused.get(command, set()), command


def test_every_dtype_that_the_help_lists_is_taken(files, capsys):
    """Scan files of each type, and export each."""
    for name in SCALARS:
        op = "logical_or" if name == "bool" else "add"
        if name != "bfloat16":
            np.save("x.npy", np.ones(3, name))
            assert run(capsys, "scan", "x.npy", "y.npy", "--device", "numpy", "--dtype", name, "--op", op)[0] == 0, name
        if name != "float64":
            assert run(capsys, "export", name, "--dtype", name, "--op", op, "--length", "9")[0] == 0, name
    assert run(capsys, "export", "float64", "--compact", "--dtype", "float64", "--length", "9")[0] == 0


def test_the_list_of_commands_cuts_no_summary(capsys, monkeypatch):
    """Show the whole first sentence of each command in 80 columns, and the exit codes of all commands."""
    monkeypatch.setenv("COLUMNS", "80")
    text = run(capsys, "--help")[1]
    lines = text[text.index("Commands:") :].splitlines()[1:]
    assert [line.split()[0] for line in lines] == sorted(cli.commands.commands)
    assert [line for line in lines if not line.endswith(".") or line.endswith("...")] == []
    for code in (0, WORK_FAILED, USAGE_WRONG, INTERRUPTED, SIGNALLED, SIGNALLED + signal.SIGTERM):
        assert re.search(rf"\b{code}\b", text[text.index("Exit codes") :]), code


def test_numbers_are_those_of_the_probe(capsys, monkeypatch):
    """List the adapters with their numbers."""
    code, err = fails(capsys, "shader", "--device", "99")
    assert code == 2
    assert all(f"{index}: {adapter.summary}" in err for index, adapter in enumerate(usable_adapters()))
