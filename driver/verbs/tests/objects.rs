//! What a C program sees of devices, ports, domains, regions, windows, handles and events.

mod common;

/// Each check prints the line it is on when it fails.
const PRELUDE: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <infiniband/verbs.h>

#define CHECK(x) do { if (!(x)) { \
    printf("line %d: %s (errno %d)\n", __LINE__, #x, errno); exit(1); } } while (0)
#define FAILS(x, e) do { errno = 0; CHECK((x)); CHECK(errno == (e)); } while (0)

static struct ibv_context *open_first(void) {
    int count = -1;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count >= 1 && !list[count]);
    struct ibv_context *context = ibv_open_device(list[0]);
    CHECK(context);
    ibv_free_device_list(list);
    return context;
}
"#;

fn run(name: &str, body: &str) {
    common::run_silent(PRELUDE, name, &[], body);
}

#[test]
fn a_device_describes_itself() {
    run(
        "describes",
        r#"
int main(void) {
    struct ibv_context *context = open_first();
    CHECK(!strcmp(ibv_get_device_name(context->device), "ferroce0"));
    CHECK(ibv_get_device_guid(context->device) != 0);
    CHECK(fcntl(context->cmd_fd, F_GETFD) >= 0 && fcntl(context->async_fd, F_GETFD) >= 0);
    struct ibv_device_attr_ex ex;
    CHECK(!ibv_query_device_ex(context, NULL, &ex));
    CHECK(ex.orig_attr.vendor_id && ex.orig_attr.phys_port_cnt == ex.phys_port_cnt_ex);
    CHECK(ex.orig_attr.node_guid == ibv_get_device_guid(context->device));
    struct ibv_port_attr port;
    CHECK(!ibv_query_port(context, 1, &port));
    CHECK(port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET);
    FAILS(ibv_query_port(context, 2, &port) == EINVAL, EINVAL);
    union ibv_gid gid;
    for (int index = 0; index < port.gid_tbl_len; index++)
        CHECK(!ibv_query_gid(context, 1, index, &gid));
    FAILS(ibv_query_gid(context, 1, port.gid_tbl_len, &gid) == -1, EINVAL);
    struct ibv_gid_entry entries[8];
    int filled = ibv_query_gid_table(context, entries, 8, 0);
    CHECK(filled >= 2 && entries[1].gid_type == IBV_GID_TYPE_ROCE_V2);
    CHECK(ibv_query_gid_table(context, entries, 1, 0) == -EINVAL);
    CHECK(ibv_query_gid_ex(context, 1, filled, entries, 0) == ENODATA);
    uint16_t pkey;
    CHECK(!ibv_query_pkey(context, 1, 0, &pkey) && pkey == 0xffff);
    CHECK(ibv_get_pkey_index(context, 1, pkey) == 0);
    struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
    CHECK(!ibv_query_rt_values_ex(context, &values) && values.raw_clock.tv_sec);
    CHECK(!ibv_close_device(context));
    return 0;
}
"#,
    );
}

#[test]
fn the_first_api_owns_only_48_bytes_of_port_attributes() {
    run(
        "port48",
        r#"
#undef ibv_query_port
int main(void) {
    struct ibv_context *context = open_first();
    unsigned char bytes[64];
    memset(bytes, 0xa5, sizeof bytes);
    CHECK(!ibv_query_port(context, 1, (struct _compat_ibv_port_attr *)bytes));
    for (int at = 48; at < 64; at++)
        CHECK(bytes[at] == 0xa5);
    CHECK(!ibv_close_device(context));
    return 0;
}
"#,
    );
}

#[test]
fn regions_are_checked_when_registered() {
    run(
        "regions",
        r#"
int main(void) {
    struct ibv_context *context = open_first();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd);
    static char memory[8192];
    int local = IBV_ACCESS_LOCAL_WRITE;
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, local);
    CHECK(mr && mr->addr == memory && mr->length == sizeof memory && mr->lkey == mr->rkey);
    FAILS(!ibv_reg_mr(pd, memory, 64, IBV_ACCESS_REMOTE_WRITE), EINVAL);
    FAILS(!ibv_reg_mr(pd, memory, 64, IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
    FAILS(!ibv_reg_mr(pd, memory, 64, 1 << 15), EINVAL);
    FAILS(!ibv_reg_mr(pd, memory, SIZE_MAX, local), EINVAL);
    void *gone = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FAILS(!ibv_reg_mr(pd, gone, 8192, local), EFAULT);
    struct ibv_mr *readable = ibv_reg_mr(pd, gone, 8192, IBV_ACCESS_REMOTE_READ);
    CHECK(readable && !ibv_dereg_mr(readable));
    munmap(gone, 8192);
    FAILS(!ibv_reg_mr(pd, gone, 8192, 0), EFAULT);
    int optional = local | IBV_ACCESS_RELAXED_ORDERING | (1 << 29);
    struct ibv_mr *relaxed = ibv_reg_mr(pd, memory, 64, optional);
    CHECK(relaxed && !ibv_dereg_mr(relaxed));
    struct ibv_mr *implicit = ibv_reg_mr(pd, NULL, SIZE_MAX, local | IBV_ACCESS_ON_DEMAND);
    CHECK(implicit);
    struct ibv_sge sge = { (uintptr_t)memory, 64, implicit->lkey };
    CHECK(!ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1));
    sge.lkey = mr->lkey;
    sge.length = 8193;
    CHECK(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) == EFAULT);
    CHECK(!ibv_dereg_mr(implicit));
    uint32_t key = mr->rkey;
    int remote = local | IBV_ACCESS_REMOTE_WRITE;
    CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, remote));
    CHECK(mr->rkey == key);
    FAILS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0) == -1, EINVAL);
    CHECK(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory + 64, 128, 0));
    CHECK(mr->addr == memory + 64 && mr->length == 128 && mr->rkey != key);
    FAILS(ibv_dealloc_pd(pd) == EBUSY, EBUSY);
    CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    return 0;
}
"#,
    );
}

#[test]
fn objects_are_imported_within_a_process() {
    run(
        "imports",
        r#"
int main(void) {
    struct ibv_context *context = open_first();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    static char memory[4096];
    struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_alloc_dm_attr attr = { .length = 4096 };
    struct ibv_dm *dm = ibv_alloc_dm(context, &attr);
    CHECK(pd && mr && dm);
    struct ibv_context *other = ibv_import_device(dup(context->cmd_fd));
    CHECK(other && other->device == context->device);
    struct ibv_pd *other_pd = ibv_import_pd(other, pd->handle);
    struct ibv_mr *other_mr = ibv_import_mr(other_pd, mr->handle);
    struct ibv_dm *other_dm = ibv_import_dm(other, dm->handle);
    CHECK(other_pd && other_mr && other_dm);
    CHECK(other_mr->lkey == mr->lkey && other_mr->length == mr->length && !other_mr->addr);
    char word[4];
    CHECK(!ibv_memcpy_to_dm(dm, 8, "abc", 4) && !ibv_memcpy_from_dm(word, other_dm, 8, 4));
    CHECK(!strcmp(word, "abc"));
    CHECK(ibv_memcpy_to_dm(dm, 6, "abc", 4) == EINVAL);
    CHECK(ibv_memcpy_to_dm(dm, 4096, "abc", 4) == EINVAL);
    FAILS(!ibv_import_pd(other, 0xdeadbeef), EINVAL);
    FAILS(!ibv_import_device(0), EOPNOTSUPP);
    ibv_unimport_mr(other_mr);
    ibv_unimport_pd(other_pd);
    ibv_unimport_dm(other_dm);
    CHECK(!ibv_close_device(other));
    struct ibv_mr *dm_mr = ibv_reg_dm_mr(pd, dm, 64, 64, IBV_ACCESS_ZERO_BASED);
    CHECK(dm_mr && !dm_mr->addr);
    FAILS(!ibv_reg_dm_mr(pd, dm, 64, 64, IBV_ACCESS_LOCAL_WRITE), EINVAL);
    FAILS(ibv_free_dm(dm) == EBUSY, EBUSY);
    CHECK(!ibv_dereg_mr(dm_mr) && !ibv_free_dm(dm));
    CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    return 0;
}
"#,
    );
}

#[test]
fn domains_windows_and_handles_come_and_go() {
    run(
        "domains",
        r#"
int main(void) {
    struct ibv_context *context = open_first();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    struct ibv_td_init_attr td_attr = { 0 };
    struct ibv_td *td = ibv_alloc_td(context, &td_attr);
    CHECK(pd && td);
    struct ibv_parent_domain_init_attr attr = { .pd = pd, .td = td };
    struct ibv_pd *parent = ibv_alloc_parent_domain(context, &attr);
    CHECK(parent);
    FAILS(ibv_dealloc_pd(pd) == EBUSY, EBUSY);
    FAILS(ibv_dealloc_td(td) == EBUSY, EBUSY);
    struct ibv_mw *mw = ibv_alloc_mw(parent, IBV_MW_TYPE_1);
    CHECK(mw && mw->rkey && mw->type == IBV_MW_TYPE_1);
    FAILS(!ibv_alloc_mw(pd, 3), EINVAL);
    union ibv_gid gid;
    CHECK(!ibv_query_gid(context, 1, 1, &gid));
    struct ibv_ah_attr to = { .grh = { .dgid = gid, .sgid_index = 1, .hop_limit = 64 },
                              .dlid = 0xc123, .is_global = 1, .port_num = 1 };
    struct ibv_ah *ah = ibv_create_ah(pd, &to);
    CHECK(ah && !ibv_destroy_ah(ah));
    uint8_t mac[6];
    uint16_t vid;
    CHECK(!ibv_resolve_eth_l2_from_gid(context, &to, mac, &vid) && vid == 0xffff);
    to.is_global = 0;
    FAILS(!ibv_create_ah(pd, &to), EINVAL);
    to.is_global = 1;
    to.grh.sgid_index = 3;
    FAILS(!ibv_create_ah(pd, &to), EINVAL);
    CHECK(!ibv_dealloc_mw(mw) && !ibv_dealloc_pd(parent));
    CHECK(!ibv_dealloc_td(td) && !ibv_dealloc_pd(pd) && !ibv_close_device(context));
    return 0;
}
"#,
    );
}

#[test]
fn asynchronous_events_follow_the_descriptor() {
    run(
        "events",
        r#"
int main(void) {
    struct ibv_context *context = open_first();
    struct ibv_async_event event;
    fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK);
    FAILS(ibv_get_async_event(context, &event) == -1, EAGAIN);
    CHECK(!ibv_close_device(context));
    return 0;
}
"#,
    );
}

#[test]
fn a_forked_child_starts_afresh() {
    run(
        "fork",
        r#"
int main(void) {
    struct ibv_context *context = open_first();
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd);
    pid_t child = fork();
    if (!child) {
        FAILS(!ibv_alloc_pd(context), EINVAL);
        CHECK(!ibv_close_device(context));
        struct ibv_context *own = open_first();
        struct ibv_pd *own_pd = ibv_alloc_pd(own);
        CHECK(own_pd && !ibv_dealloc_pd(own_pd) && !ibv_close_device(own));
        return 0;
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
    CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
    return 0;
}
"#,
    );
}

#[test]
fn null_is_an_argument_like_any_other() {
    run(
        "null",
        r#"
int main(void) {
    FAILS(!ibv_open_device(NULL), EINVAL);
    FAILS(!ibv_get_device_name(NULL), EINVAL);
    CHECK(ibv_get_device_guid(NULL) == 0);
    FAILS(ibv_close_device(NULL) == EINVAL, EINVAL);
    FAILS(ibv_query_device(NULL, NULL) == EINVAL, EINVAL);
    FAILS(ibv_query_gid(NULL, 1, 0, NULL) == -1, EINVAL);
    FAILS(!ibv_alloc_pd(NULL), EINVAL);
    FAILS(ibv_dealloc_pd(NULL) == EINVAL, EINVAL);
    FAILS(ibv_dereg_mr(NULL) == EINVAL, EINVAL);
    FAILS(ibv_rereg_mr(NULL, 1, NULL, NULL, 0, 0) == -1, EINVAL);
    FAILS(!ibv_create_ah(NULL, NULL), EINVAL);
    FAILS(ibv_destroy_ah(NULL) == EINVAL, EINVAL);
    FAILS(ibv_init_ah_from_wc(NULL, 1, NULL, NULL, NULL) == EINVAL, EINVAL);
    FAILS(ibv_get_async_event(NULL, NULL) == -1, EINVAL);
    ibv_ack_async_event(NULL);
    ibv_free_device_list(NULL);
    ibv_unimport_pd(NULL);
    return 0;
}
"#,
    );
}
