"""Numbers of several lanes from places in memory and back, in LLVM's language."""

from __future__ import annotations

from typing import NamedTuple

_LOOP = """\
define void @{name}(ptr %slots, ptr %places, ptr %w, i64 %number) nounwind {{
  br label %body
body:
  %j = phi i64 [ 0, %0 ], [ %next, %body ]
  %ip = getelementptr <{width} x i32>, ptr %places, i64 %j
  %i = load <{width} x i32>, ptr %ip, align 4
  %p = getelementptr {vector}, ptr %slots, i64 %j
{inside}
  %next = add i64 %j, 1
  %more = icmp slt i64 %next, %number
  br i1 %more, label %body, label %end
end:
  ret void
}}"""
_GATHER = """\
  %z = zext <{width} x i32> %i to <{width} x i64>
  %q = getelementptr double, ptr %w, <{width} x i64> %z
  %v = call {vector} @llvm.masked.gather.v{width}f64.v{width}p0(<{width} x ptr> %q, i32 8, \
<{width} x i1> splat (i1 true), {vector} poison)
  store {vector} %v, ptr %p"""
_LANE = """\
  %i{lane} = extractelement <{width} x i32> %i, i64 {lane}
  %z{lane} = zext i32 %i{lane} to i64
  %q{lane} = getelementptr double, ptr %w, i64 %z{lane}
  %v{lane} = extractelement {vector} %v, i64 {lane}"""
_PUT = "  store double %v{lane}, ptr %q{lane}"
_ADD = """\
  %o{lane} = load double, ptr %q{lane}
  %s{lane} = fadd double %o{lane}, %v{lane}
  store double %s{lane}, ptr %q{lane}"""


class Copying(NamedTuple):
    """A function of (slots, places, w, number): "gather" from places in w, or "put" or "add" them there."""

    how: str
    lanes: int

    @property
    def name(self) -> str:
        return f"{self.how}{self.lanes}"

    @property
    def declaration(self) -> str:
        return f"declare void @{self.name}(ptr, ptr, ptr, i64)"

    @property
    def needs(self) -> str:
        """The declaration of a function that it calls; empty if there is none."""
        w = self.lanes
        vector, lanes = f"<{w} x double>", f"<{w} x i1>"
        gather = f"declare {vector} @llvm.masked.gather.v{w}f64.v{w}p0(<{w} x ptr>, i32, {lanes}, {vector})"
        return gather if self.how == "gather" else ""

    def text(self) -> str:
        """Its definition."""
        form = {"width": self.lanes, "vector": f"<{self.lanes} x double>"}
        if self.how == "gather":
            inside = _GATHER.format(**form)
        else:
            lane = f"{_LANE}\n{_PUT if self.how == 'put' else _ADD}"
            lines = [lane.format(lane=k, **form) for k in range(self.lanes)]
            inside = "\n".join([f"  %v = load {form['vector']}, ptr %p", *lines])
        return _LOOP.format(name=self.name, inside=inside, **form)
