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
_PLACE = """\
  %i{lane} = extractelement <{width} x i32> %i, i64 {lane}
  %z{lane} = zext i32 %i{lane} to i64
  %q{lane} = getelementptr double, ptr %w, i64 %z{lane}"""
# One load for each lane takes less time than the instruction that gathers them, up to a fifth of a step.
_LOADED = """\
  %v{lane} = load double, ptr %q{lane}
  %g{lane} = insertelement {vector} {before}, double %v{lane}, i64 {lane}"""
_VALUE = "  %v{lane} = extractelement {vector} %v, i64 {lane}"
_PUT = "  store double %v{lane}, ptr %q{lane}"
_ADD = """\
  %o{lane} = load double, ptr %q{lane}
  %s{lane} = fadd double %o{lane}, %v{lane}
  store double %s{lane}, ptr %q{lane}"""
_ACTS = {"gather": (_LOADED,), "put": (_VALUE, _PUT), "add": (_VALUE, _ADD)}


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

    def text(self) -> str:
        """Its definition."""
        width, vector = self.lanes, f"<{self.lanes} x double>"
        lines = []
        for lane in range(width):
            form = {"lane": lane, "width": width, "vector": vector}
            form["before"] = f"%g{lane - 1}" if lane else "poison"
            lines += [part.format(**form) for part in (_PLACE, *_ACTS[self.how])]
        if self.how == "gather":
            lines.append(f"  store {vector} %g{width - 1}, ptr %p")
        else:
            lines.insert(0, f"  %v = load {vector}, ptr %p")
        return _LOOP.format(name=self.name, width=width, vector=vector, inside="\n".join(lines))
