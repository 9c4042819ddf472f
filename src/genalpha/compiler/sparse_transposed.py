"""Solutions with the transpose of a sparse matrix, in LLVM's language (see `sparse_text`)."""

# The solution of Aᵀ d = b. The k-th pivot is in row ``column[k]`` of b, and in row ``row[k]`` of d. Columns
# of L and U are rows of their transposes, so every unknown is a sum over one column.
SOLVE_TRANSPOSED = """\
define {linkage} void @lu_solve_transposed(
    i64 %n, ptr noalias %l, ptr noalias %lp, ptr noalias %li, ptr noalias %u, ptr noalias %up,
    ptr noalias %ui, ptr noalias %inv, ptr noalias %row, ptr noalias %column, ptr noalias %b, ptr noalias %d,
    ptr noalias %x) nounwind {{
  br label %forward
forward:
  %k = phi i64 [ 0, %0 ], [ %k.next, %u.done ]
  %k.more = icmp slt i64 %k, %n
  br i1 %k.more, label %f.one, label %backward
f.one:
  %k.next = add i64 %k, 1
  %column.p = getelementptr i32, ptr %column, i64 %k
  %column.32 = load i32, ptr %column.p
  %column.at = zext i32 %column.32 to i64
  %b.p = getelementptr double, ptr %b, i64 %column.at
  %b.v = load double, ptr %b.p
  %u.p = getelementptr i32, ptr %up, i64 %k
  %u.32 = load i32, ptr %u.p
  %u.q = getelementptr i32, ptr %up, i64 %k.next
  %v.32 = load i32, ptr %u.q
  %u.first = zext i32 %u.32 to i64
  %u.last = zext i32 %v.32 to i64
  br label %u.look
u.look:
  %w = phi i64 [ %u.first, %f.one ], [ %w.next, %u.one ]
  %y = phi double [ %b.v, %f.one ], [ %y.next, %u.one ]
  %w.more = icmp slt i64 %w, %u.last
  br i1 %w.more, label %u.one, label %u.done
u.one:
  %w.next = add i64 %w, 1
  %w.i = getelementptr i32, ptr %ui, i64 %w
  %w.32 = load i32, ptr %w.i
  %w.at = zext i32 %w.32 to i64
  %w.p = getelementptr double, ptr %u, i64 %w
  %w.u = load double, ptr %w.p
  %x.w = getelementptr double, ptr %x, i64 %w.at
  %known = load double, ptr %x.w
  %w.product = fmul contract double %w.u, %known
  %y.next = fsub contract double %y, %w.product
  br label %u.look
u.done:
  %inv.p = getelementptr double, ptr %inv, i64 %k
  %over = load double, ptr %inv.p
  %y.k = fmul double %y, %over
  %x.k = getelementptr double, ptr %x, i64 %k
  store double %y.k, ptr %x.k
  br label %forward
backward:
  %c = phi i64 [ %n, %forward ], [ %j, %l.done ]
  %c.more = icmp sgt i64 %c, 0
  br i1 %c.more, label %b.one, label %end
b.one:
  %j = sub i64 %c, 1
  %x.j = getelementptr double, ptr %x, i64 %j
  %before = load double, ptr %x.j
  %l.p = getelementptr i32, ptr %lp, i64 %j
  %l.32 = load i32, ptr %l.p
  %l.q = getelementptr i32, ptr %lp, i64 %c
  %m.32 = load i32, ptr %l.q
  %l.first = zext i32 %l.32 to i64
  %l.last = zext i32 %m.32 to i64
  br label %l.look
l.look:
  %r = phi i64 [ %l.first, %b.one ], [ %r.next, %l.one ]
  %z = phi double [ %before, %b.one ], [ %z.next, %l.one ]
  %r.more = icmp slt i64 %r, %l.last
  br i1 %r.more, label %l.one, label %l.done
l.one:
  %r.next = add i64 %r, 1
  %r.i = getelementptr i32, ptr %li, i64 %r
  %r.32 = load i32, ptr %r.i
  %r.at = zext i32 %r.32 to i64
  %r.p = getelementptr double, ptr %l, i64 %r
  %r.l = load double, ptr %r.p
  %x.r = getelementptr double, ptr %x, i64 %r.at
  %later = load double, ptr %x.r
  %r.product = fmul contract double %r.l, %later
  %z.next = fsub contract double %z, %r.product
  br label %l.look
l.done:
  store double %z, ptr %x.j
  %row.p = getelementptr i32, ptr %row, i64 %j
  %row.32 = load i32, ptr %row.p
  %row.at = zext i32 %row.32 to i64
  %d.p = getelementptr double, ptr %d, i64 %row.at
  store double %z, ptr %d.p
  br label %backward
end:
  ret void
}}
"""
