//! Every structure is where the installed header has it.

mod common;

use std::collections::HashMap;
use std::fmt::Write;

use ferroce_verbs::layout::{LAYOUTS, Layout};

/// What headers from before rdma-core 59 do not have.
const NEWER: [(&str, &str); 8] = [
    ("ibv_port_attr", "active_speed_ex"),
    ("ibv_qp_ex", "wr_flush"),
    ("verbs_context", "free_buf"),
    ("verbs_context", "alloc_buf"),
    ("verbs_context", "dm_export_dmabuf_fd"),
    ("verbs_context", "reg_mr_ex"),
    ("verbs_context", "dealloc_dmah"),
    ("verbs_context", "alloc_dmah"),
];

/// The name in C of a field that has a keyword's name there.
fn c_name(field: &str) -> &str {
    field.strip_suffix('_').unwrap_or(field)
}

/// Fields the header may lack are left out of the C program; so are those of kernel structures
/// that C nests deeper.
fn is_compared(layout: &Layout, field: &str) -> bool {
    let nested = layout.name == "ib_uverbs_ah_attr";
    !nested && !NEWER.contains(&(layout.name, field))
}

fn source() -> String {
    let mut source = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n\
         #include <infiniband/sa.h>\n#include <rdma/ib_user_verbs.h>\n\
         #include <rdma/ib_user_sa.h>\n#include <rdma/rdma_cma.h>\nint main(void) {\n",
    );
    for layout in LAYOUTS.into_iter().flatten() {
        let name = layout.name;
        let _ = writeln!(source, "printf(\"{name} %zu\\n\", sizeof(struct {name}));");
        for (field, _) in layout.fields.iter().filter(|(field, _)| is_compared(layout, field)) {
            let c_field = c_name(field);
            let _ = writeln!(
                source,
                "printf(\"{name}.{field} %zu\\n\", offsetof(struct {name}, {c_field}));"
            );
        }
    }
    source + "return 0; }\n"
}

#[test]
fn offsets_are_those_of_the_header() {
    let folder = common::library_folder("layout");
    let Some(program) = common::compile(&folder, &source(), &[]) else { return };
    let printed = common::run(&folder, &program);
    let header: HashMap<&str, usize> = printed
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(name, number)| Some((name, number.parse().ok()?)))
        .collect();
    for layout in LAYOUTS.into_iter().flatten() {
        let grown = layout.size - header[layout.name];
        let may_grow = NEWER.iter().any(|(name, _)| *name == layout.name);
        assert!(grown == 0 || may_grow, "{} has another size", layout.name);
        // This one structure grows at its front.
        let shift = if layout.name == "verbs_context" { grown } else { 0 };
        for (field, offset) in layout.fields.iter().filter(|(field, _)| is_compared(layout, field))
        {
            let there = header[format!("{}.{field}", layout.name).as_str()];
            assert_eq!(*offset, there + shift, "{}.{field}", layout.name);
        }
    }
}
