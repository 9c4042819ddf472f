"""The search in a sorted table in LLVM's language."""

# Bisection in a table whose entries have a fixed distance.
SEARCH = """\
define internal double @{name}(ptr %a, i64 %size, i64 %turns, double %x) nounwind {{
  %number = fcmp ord double %x, %x
  br label %head
head:
  %low = phi i64 [ 0, %0 ], [ %lower, %body ]
  %high = phi i64 [ %size, %0 ], [ %higher, %body ]
  %turn = phi i64 [ 0, %0 ], [ %next, %body ]
  %more = icmp slt i64 %turn, %turns
  br i1 %more, label %body, label %end
body:
  %next = add i64 %turn, 1
  %sum = add i64 %low, %high
  %middle = lshr i64 %sum, 1
  %at = mul i64 %middle, {step}
  %p = getelementptr double, ptr %a, i64 %at
  %entry = load double, ptr %p
  %nan = fcmp uno double %entry, %entry
  %valid = or i1 %number, {nan}
  %less = fcmp {less} double %x, %entry
  %before = and i1 %valid, %less
  %lower = select i1 %before, i64 %low, i64 %middle
  %higher = select i1 %before, i64 %middle, i64 %high
  br label %head
end:
  %found = sitofp i64 %high to double
  ret double %found
}}"""
SIDES = {"search_left": {"less": "ule", "nan": "%nan"}, "search_right": {"less": "ult", "nan": "false"}}
