"""Sparse LU in LLVM's language. Patterns are data, so the same code serves every matrix.

The matrix is stored by columns, in the order of its pivots: column k has the entries ``ap[k]`` to
``ap[k + 1]``, in the rows ``ai``, which are numbered in the order of pivots too. L has ones on its diagonal,
which are not stored, and ``inv`` holds one over each pivot. Column k of L and U is computed from the columns
before it (Gilbert & Peierls, 1988, with a pattern that is known from ``lu_pattern``).
"""

from __future__ import annotations

# The pattern of L and U without pivoting: for every column, the rows that are reached from its entries
# through the columns of L, by depth-first search. The rows of U are stored in an order in which they can be
# eliminated. ``mark`` (n) must be −1; ``stack``, ``place`` and ``found`` (n) are memory. Returns −1 if
# ``room`` is too small for L or U.
PATTERN = """\
define i64 @lu_pattern(i64 %n, ptr %ap, ptr %ai, ptr %lp, ptr %li, ptr %up, ptr %ui, ptr %mark, ptr %stack,
                       ptr %place, ptr %found, i64 %room) nounwind {
  store i32 0, ptr %lp
  store i32 0, ptr %up
  br label %column
column:
  %k = phi i64 [ 0, %0 ], [ %k.next, %finish ]
  %lnz = phi i64 [ 0, %0 ], [ %lnz.end, %finish ]
  %unz = phi i64 [ 0, %0 ], [ %unz.end, %finish ]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %begin, label %end
begin:
  %k.next = add i64 %k, 1
  %k32 = trunc i64 %k to i32
  %free = sub i64 %room, %n
  %l.fits = icmp slt i64 %lnz, %free
  %u.fits = icmp slt i64 %unz, %free
  %fits = and i1 %l.fits, %u.fits
  br i1 %fits, label %start, label %full
full:
  ret i64 -1
start:
  %a.p = getelementptr i32, ptr %ap, i64 %k
  %a.first = load i32, ptr %a.p
  %a.q = getelementptr i32, ptr %ap, i64 %k.next
  %a.last = load i32, ptr %a.q
  br label %entry
entry:
  %e = phi i32 [ %a.first, %start ], [ %e.next, %entry.done ]
  %l.count = phi i64 [ %lnz, %start ], [ %l.after, %entry.done ]
  %u.count = phi i64 [ 0, %start ], [ %u.after, %entry.done ]
  %e.more = icmp slt i32 %e, %a.last
  br i1 %e.more, label %look, label %columns.done
look:
  %e.next = add i32 %e, 1
  %e.at = sext i32 %e to i64
  %e.p = getelementptr i32, ptr %ai, i64 %e.at
  %row = load i32, ptr %e.p
  br label %visit
visit:                                            ; a row that may be new, at depth %depth of the stack
  %r = phi i32 [ %row, %look ], [ %child, %descend ]
  %depth = phi i64 [ 0, %look ], [ %depth.up, %descend ]
  %l.here = phi i64 [ %l.count, %look ], [ %l.inner, %descend ]
  %u.here = phi i64 [ %u.count, %look ], [ %u.inner, %descend ]
  %r.at = sext i32 %r to i64
  %m.p = getelementptr i32, ptr %mark, i64 %r.at
  %m = load i32, ptr %m.p
  %known = icmp eq i32 %m, %k32
  br i1 %known, label %back, label %new
new:
  store i32 %k32, ptr %m.p
  %below = icmp sgt i32 %r, %k32
  br i1 %below, label %in.l, label %in.u
in.l:
  %l.p = getelementptr i32, ptr %li, i64 %l.here
  store i32 %r, ptr %l.p
  %l.plus = add i64 %l.here, 1
  br label %back
in.u:
  %diagonal = icmp eq i32 %r, %k32
  br i1 %diagonal, label %back, label %push
push:
  %s.p = getelementptr i32, ptr %stack, i64 %depth
  store i32 %r, ptr %s.p
  %f.p = getelementptr i32, ptr %lp, i64 %r.at
  %f = load i32, ptr %f.p
  %c.p = getelementptr i32, ptr %place, i64 %depth
  store i32 %f, ptr %c.p
  %depth.new = add i64 %depth, 1
  br label %back
back:                                             ; go on with the row on top of the stack
  %depth.now = phi i64 [ %depth, %visit ], [ %depth, %in.l ], [ %depth, %in.u ],
                       [ %depth.new, %push ], [ %top, %pop ]
  %l.inner = phi i64 [ %l.here, %visit ], [ %l.plus, %in.l ], [ %l.here, %in.u ],
                     [ %l.here, %push ], [ %l.inner, %pop ]
  %u.inner = phi i64 [ %u.here, %visit ], [ %u.here, %in.l ], [ %u.here, %in.u ],
                     [ %u.here, %push ], [ %u.plus, %pop ]
  %empty = icmp eq i64 %depth.now, 0
  br i1 %empty, label %entry.done, label %climb
climb:
  %top = sub i64 %depth.now, 1
  %t.p = getelementptr i32, ptr %stack, i64 %top
  %t = load i32, ptr %t.p
  %t.at = sext i32 %t to i64
  %t.next = add i64 %t.at, 1
  %b.p = getelementptr i32, ptr %lp, i64 %t.next
  %b = load i32, ptr %b.p
  %w.p = getelementptr i32, ptr %place, i64 %top
  %w = load i32, ptr %w.p
  %w.more = icmp slt i32 %w, %b
  br i1 %w.more, label %descend, label %pop
descend:
  %w.next = add i32 %w, 1
  store i32 %w.next, ptr %w.p
  %w.at = sext i32 %w to i64
  %child.p = getelementptr i32, ptr %li, i64 %w.at
  %child = load i32, ptr %child.p
  %depth.up = add i64 %depth.now, 0
  br label %visit
pop:                                              ; all rows below it are known
  %o.p = getelementptr i32, ptr %found, i64 %u.inner
  store i32 %t, ptr %o.p
  %u.plus = add i64 %u.inner, 1
  br label %back
entry.done:
  %l.after = add i64 %l.inner, 0
  %u.after = add i64 %u.inner, 0
  br label %entry
columns.done:                                     ; rows of U in the reverse order in which they were left
  br label %copy
copy:
  %i = phi i64 [ 0, %columns.done ], [ %i.next, %copy.one ]
  %i.more = icmp slt i64 %i, %u.count
  br i1 %i.more, label %copy.one, label %finish
copy.one:
  %i.next = add i64 %i, 1
  %from = sub i64 %u.count, %i.next
  %from.p = getelementptr i32, ptr %found, i64 %from
  %one = load i32, ptr %from.p
  %to = add i64 %unz, %i
  %to.p = getelementptr i32, ptr %ui, i64 %to
  store i32 %one, ptr %to.p
  br label %copy
finish:
  %lnz.end = add i64 %l.count, 0
  %unz.end = add i64 %unz, %u.count
  %lnz.32 = trunc i64 %lnz.end to i32
  %lp.p = getelementptr i32, ptr %lp, i64 %k.next
  store i32 %lnz.32, ptr %lp.p
  %unz.32 = trunc i64 %unz.end to i32
  %up.p = getelementptr i32, ptr %up, i64 %k.next
  store i32 %unz.32, ptr %up.p
  br label %column
end:
  ret i64 %unz
}
"""

# Numeric factors. ``x`` (n) must be zero, and is zero afterwards. ``out`` receives the largest multiple of a
# row, the largest pivot, the largest inverse pivot, and the sum of all entries, which is finite if they are.
FACTOR = """\
define {linkage} void @lu_factor(
    i64 %n, ptr noalias %a, ptr noalias %ap, ptr noalias %ai, ptr noalias %l, ptr noalias %lp,
    ptr noalias %li, ptr noalias %u, ptr noalias %up, ptr noalias %ui, ptr noalias %inv, ptr noalias %x,
    ptr noalias %out) nounwind {{
  br label %column
column:
  %k = phi i64 [ 0, %0 ], [ %k.next, %store.done ]
  %growth = phi double [ 0.0, %0 ], [ %growth.row, %store.done ]
  %largest = phi double [ 0.0, %0 ], [ %largest.new, %store.done ]
  %inverse = phi double [ 0.0, %0 ], [ %inverse.new, %store.done ]
  %total = phi double [ 0.0, %0 ], [ %total.row, %store.done ]
  %more = icmp slt i64 %k, %n
  br i1 %more, label %begin, label %end
begin:
  %k.next = add i64 %k, 1
  %a.p = getelementptr i32, ptr %ap, i64 %k
  %a.32 = load i32, ptr %a.p
  %a.q = getelementptr i32, ptr %ap, i64 %k.next
  %b.32 = load i32, ptr %a.q
  %a.first = zext i32 %a.32 to i64
  %a.last = zext i32 %b.32 to i64
  %u.p = getelementptr i32, ptr %up, i64 %k
  %u.32 = load i32, ptr %u.p
  %u.q = getelementptr i32, ptr %up, i64 %k.next
  %v.32 = load i32, ptr %u.q
  %u.first = zext i32 %u.32 to i64
  %u.last = zext i32 %v.32 to i64
  %l.p = getelementptr i32, ptr %lp, i64 %k
  %l.32 = load i32, ptr %l.p
  %l.q = getelementptr i32, ptr %lp, i64 %k.next
  %m.32 = load i32, ptr %l.q
  %l.first = zext i32 %l.32 to i64
  %l.last = zext i32 %m.32 to i64
  br label %load
load:
  %e = phi i64 [ %a.first, %begin ], [ %e.next, %load.one ]
  %total.row = phi double [ %total, %begin ], [ %total.new, %load.one ]
  %e.more = icmp slt i64 %e, %a.last
  br i1 %e.more, label %load.one, label %update
load.one:
  %e.next = add i64 %e, 1
  %e.p = getelementptr double, ptr %a, i64 %e
  %e.v = load double, ptr %e.p
  %e.i = getelementptr i32, ptr %ai, i64 %e
  %e.r = load i32, ptr %e.i
  %e.at = zext i32 %e.r to i64
  %x.e = getelementptr double, ptr %x, i64 %e.at
  store double %e.v, ptr %x.e
  %total.new = fadd double %total.row, %e.v
  br label %load
update:
  %j = phi i64 [ %u.first, %load ], [ %j.next, %multiples ]
  %j.more = icmp slt i64 %j, %u.last
  br i1 %j.more, label %one, label %pivot
one:
  %j.next = add i64 %j, 1
  %j.i = getelementptr i32, ptr %ui, i64 %j
  %j.r = load i32, ptr %j.i
  %j.at = zext i32 %j.r to i64
  %x.j = getelementptr double, ptr %x, i64 %j.at
  %by = load double, ptr %x.j
  store double 0.0, ptr %x.j
  %u.at = getelementptr double, ptr %u, i64 %j
  store double %by, ptr %u.at
  %c.p = getelementptr i32, ptr %lp, i64 %j.at
  %c.32 = load i32, ptr %c.p
  %j.after = add i64 %j.at, 1
  %d.p = getelementptr i32, ptr %lp, i64 %j.after
  %d.32 = load i32, ptr %d.p
  %c = zext i32 %c.32 to i64
  %d = zext i32 %d.32 to i64
  br label %multiples
multiples:
  %r = phi i64 [ %c, %one ], [ %r.next, %multiple ]
  %r.more = icmp slt i64 %r, %d
  br i1 %r.more, label %multiple, label %update
multiple:
  %r.next = add i64 %r, 1
  %r.i = getelementptr i32, ptr %li, i64 %r
  %r.r = load i32, ptr %r.i
  %r.at = zext i32 %r.r to i64
  %r.p = getelementptr double, ptr %l, i64 %r
  %r.l = load double, ptr %r.p
  %x.r = getelementptr double, ptr %x, i64 %r.at
  %before = load double, ptr %x.r
  %product = fmul contract double %r.l, %by
  %after = fsub contract double %before, %product
  store double %after, ptr %x.r
  br label %multiples
pivot:
  %x.k = getelementptr double, ptr %x, i64 %k
  %p = load double, ptr %x.k
  store double 0.0, ptr %x.k
  %over = fdiv double 1.0, %p
  %inv.k = getelementptr double, ptr %inv, i64 %k
  store double %over, ptr %inv.k
  %p.size = call double @llvm.fabs.f64(double %p)
  %p.more = fcmp ule double %p.size, %largest
  %largest.new = select i1 %p.more, double %largest, double %p.size
  %o.size = call double @llvm.fabs.f64(double %over)
  %o.more = fcmp ole double %o.size, %inverse
  %inverse.new = select i1 %o.more, double %inverse, double %o.size
  br label %store
store:
  %s = phi i64 [ %l.first, %pivot ], [ %s.next, %store.one ]
  %growth.row = phi double [ %growth, %pivot ], [ %growth.new, %store.one ]
  %s.more = icmp slt i64 %s, %l.last
  br i1 %s.more, label %store.one, label %store.done
store.one:
  %s.next = add i64 %s, 1
  %s.i = getelementptr i32, ptr %li, i64 %s
  %s.r = load i32, ptr %s.i
  %s.at = zext i32 %s.r to i64
  %x.s = getelementptr double, ptr %x, i64 %s.at
  %s.v = load double, ptr %x.s
  store double 0.0, ptr %x.s
  %s.l = fmul double %s.v, %over
  %s.p = getelementptr double, ptr %l, i64 %s
  store double %s.l, ptr %s.p
  %s.size = call double @llvm.fabs.f64(double %s.l)
  %s.less = fcmp ole double %s.size, %growth.row
  %growth.new = select i1 %s.less, double %growth.row, double %s.size
  br label %store
store.done:
  br label %column
end:
  store double %growth, ptr %out
  %out.1 = getelementptr double, ptr %out, i64 1
  store double %largest, ptr %out.1
  %out.2 = getelementptr double, ptr %out, i64 2
  store double %inverse, ptr %out.2
  %out.3 = getelementptr double, ptr %out, i64 3
  store double %total, ptr %out.3
  ret void
}}
"""

# The solution of A d = b. The k-th pivot is in row ``row[k]`` of b, and in row ``column[k]`` of d.
SOLVE = """\
define {linkage} void @lu_solve(
    i64 %n, ptr noalias %l, ptr noalias %lp, ptr noalias %li, ptr noalias %u, ptr noalias %up,
    ptr noalias %ui, ptr noalias %inv, ptr noalias %row, ptr noalias %column, ptr noalias %b, ptr noalias %d,
    ptr noalias %x) nounwind {{
  br label %load
load:
  %i = phi i64 [ 0, %0 ], [ %i.next, %load.one ]
  %i.more = icmp slt i64 %i, %n
  br i1 %i.more, label %load.one, label %forward
load.one:
  %i.next = add i64 %i, 1
  %row.p = getelementptr i32, ptr %row, i64 %i
  %row.32 = load i32, ptr %row.p
  %row.at = zext i32 %row.32 to i64
  %b.p = getelementptr double, ptr %b, i64 %row.at
  %b.v = load double, ptr %b.p
  %x.i = getelementptr double, ptr %x, i64 %i
  store double %b.v, ptr %x.i
  br label %load
forward:
  %k = phi i64 [ 0, %load ], [ %k.next, %down ]
  %k.more = icmp slt i64 %k, %n
  br i1 %k.more, label %f.one, label %backward
f.one:
  %k.next = add i64 %k, 1
  %x.k = getelementptr double, ptr %x, i64 %k
  %y = load double, ptr %x.k
  %l.p = getelementptr i32, ptr %lp, i64 %k
  %l.32 = load i32, ptr %l.p
  %l.q = getelementptr i32, ptr %lp, i64 %k.next
  %m.32 = load i32, ptr %l.q
  %l.first = zext i32 %l.32 to i64
  %l.last = zext i32 %m.32 to i64
  br label %down
down:
  %r = phi i64 [ %l.first, %f.one ], [ %r.next, %down.one ]
  %r.more = icmp slt i64 %r, %l.last
  br i1 %r.more, label %down.one, label %forward
down.one:
  %r.next = add i64 %r, 1
  %r.i = getelementptr i32, ptr %li, i64 %r
  %r.32 = load i32, ptr %r.i
  %r.at = zext i32 %r.32 to i64
  %r.p = getelementptr double, ptr %l, i64 %r
  %r.l = load double, ptr %r.p
  %x.r = getelementptr double, ptr %x, i64 %r.at
  %before = load double, ptr %x.r
  %product = fmul contract double %r.l, %y
  %after = fsub contract double %before, %product
  store double %after, ptr %x.r
  br label %down
backward:
  %c = phi i64 [ %n, %forward ], [ %j, %up.done ]
  %c.more = icmp sgt i64 %c, 0
  br i1 %c.more, label %b.one, label %end
b.one:
  %j = sub i64 %c, 1
  %x.j = getelementptr double, ptr %x, i64 %j
  %z = load double, ptr %x.j
  %inv.p = getelementptr double, ptr %inv, i64 %j
  %over = load double, ptr %inv.p
  %s = fmul double %z, %over
  %column.p = getelementptr i32, ptr %column, i64 %j
  %column.32 = load i32, ptr %column.p
  %column.at = zext i32 %column.32 to i64
  %d.p = getelementptr double, ptr %d, i64 %column.at
  store double %s, ptr %d.p
  %u.p = getelementptr i32, ptr %up, i64 %j
  %u.32 = load i32, ptr %u.p
  %u.q = getelementptr i32, ptr %up, i64 %c
  %v.32 = load i32, ptr %u.q
  %u.first = zext i32 %u.32 to i64
  %u.last = zext i32 %v.32 to i64
  br label %climb
climb:
  %w = phi i64 [ %u.first, %b.one ], [ %w.next, %climb.one ]
  %w.more = icmp slt i64 %w, %u.last
  br i1 %w.more, label %climb.one, label %up.done
climb.one:
  %w.next = add i64 %w, 1
  %w.i = getelementptr i32, ptr %ui, i64 %w
  %w.32 = load i32, ptr %w.i
  %w.at = zext i32 %w.32 to i64
  %w.p = getelementptr double, ptr %u, i64 %w
  %w.u = load double, ptr %w.p
  %x.w = getelementptr double, ptr %x, i64 %w.at
  %x.before = load double, ptr %x.w
  %x.product = fmul contract double %w.u, %s
  %x.after = fsub contract double %x.before, %x.product
  store double %x.after, ptr %x.w
  br label %climb
up.done:
  br label %backward
end:
  ret void
}}
"""
