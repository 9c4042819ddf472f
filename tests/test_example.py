"""What `make run` prints and saves."""

import re

from examples.slider_crank import main


def test_the_summary_tells_what_happened(tmp_path, capsys):
    main("wheel-on-rod", str(tmp_path))
    out = capsys.readouterr().out
    number = lambda pattern: float(re.search(pattern, out)[1])
    assert number(r"steps +(\d+)") == 400
    assert 400 < number(r"Newton iterations +(\d+)") < 4000
    assert abs(number(r"energy change +([+-][\d.e+-]+) J")) < 1e-3
    assert number(r"position ([\d.e+-]+)") < 1e-13
    assert number(r"velocity ([\d.e+-]+)") < 1e-11
    assert number(r"compile time +([\d.]+) s") > 0
    assert number(r"run time +([\d.]+) ms") > 0
    assert number(r"error of q at the end +([\d.e+-]+)") < 1e-4
    assert (tmp_path / "wheel-on-rod.png").stat().st_size > 10_000
