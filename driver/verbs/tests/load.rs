//! A program linked against both libraries loads ours instead.

mod common;

const PROGRAM: &str = r#"
#include <errno.h>
#include <stdio.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

int main(void) {
    if (ibv_fork_init() || ibv_is_fork_initialized() != IBV_FORK_UNNEEDED)
        return 1;
    printf("%s\n", ibv_wc_status_str(IBV_WC_RNR_RETRY_EXC_ERR));
    printf("%s\n", rdma_event_str(RDMA_CM_EVENT_ESTABLISHED));
    printf("%d\n", ibv_rate_to_mbps(IBV_RATE_100_GBPS));
    return 0;
}
"#;

#[test]
fn a_linked_program_runs_without_a_word_from_the_loader() {
    let folder = common::library_folder("load");
    let libraries = ["-libverbs", "-lrdmacm"];
    let Some(program) = common::compile(&folder, PROGRAM, &libraries) else { return };
    let printed = common::run(&folder, &program);
    assert_eq!(
        printed.lines().collect::<Vec<_>>(),
        ["RNR retry counter exceeded", "RDMA_CM_EVENT_ESTABLISHED", "103125"]
    );
}
