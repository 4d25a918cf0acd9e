//! What a C program sees of raw packet QPs, of a region of nothing, and of addresses without a GRH.

mod common;

/// A device with a domain, a CQ and registered memory.
const PRELUDE: &str = r#"
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include <infiniband/verbs.h>

#define CHECK(x) do { if (!(x)) { \
    printf("line %d: %s (errno %d)\n", __LINE__, #x, errno); exit(1); } } while (0)
#define FAILS(x, e) do { errno = 0; CHECK((x) == (e)); CHECK(errno == (e)); } while (0)

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static char memory[8192];

static void open_all(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0]);
    CHECK((context = ibv_open_device(list[0])));
    ibv_free_device_list(list);
    CHECK((pd = ibv_alloc_pd(context)));
    CHECK((cq = ibv_create_cq(context, 64, NULL, NULL, 0)));
    CHECK((mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE)));
}

static void close_all(void) {
    CHECK(!ibv_dereg_mr(mr));
    CHECK(!ibv_destroy_cq(cq));
    CHECK(!ibv_dealloc_pd(pd));
    CHECK(!ibv_close_device(context));
}

static struct ibv_qp *new_qp(enum ibv_qp_type type) {
    struct ibv_qp_init_attr init = { .qp_type = type, .send_cq = cq, .recv_cq = cq,
        .cap = { 8, 8, 2, 2, 64 } };
    return ibv_create_qp(pd, &init);
}

static void to(struct ibv_qp *qp, enum ibv_qp_state state, int mask) {
    struct ibv_qp_attr attr = { .qp_state = state, .port_num = 1, .qkey = 7 };
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask));
}

static struct ibv_wc next(void) {
    struct ibv_wc wc;
    while (!ibv_poll_cq(cq, 1, &wc));
    return wc;
}

static struct ibv_sge piece(size_t offset, uint32_t length) {
    return (struct ibv_sge){ (uintptr_t)memory + offset, length, mr->lkey };
}
"#;

fn run_with(name: &str, variables: &[(&str, &str)], body: &str) {
    common::run_silent(PRELUDE, name, variables, body);
}

#[test]
fn raw_packets_leave_by_both_interfaces() {
    run_with(
        "raw_packets",
        &[],
        r#"
int main(void) {
    open_all();
    struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_RAW_PACKET, .send_cq = cq,
        .recv_cq = cq, .pd = pd, .cap = { 8, 8, 2, 2, 64 },
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .send_ops_flags = IBV_QP_EX_WITH_SEND_WITH_IMM };
    CHECK(!ibv_create_qp_ex(context, &init) && errno == EOPNOTSUPP);
    init.send_ops_flags = IBV_QP_EX_WITH_SEND;
    struct ibv_qp *qp = new_qp(IBV_QPT_RAW_PACKET), *extended = ibv_create_qp_ex(context, &init);
    CHECK(qp && qp->qp_type == IBV_QPT_RAW_PACKET && extended);
    for (int at = 0; at < 2; at++) {
        struct ibv_qp *each = at ? extended : qp;
        to(each, IBV_QPS_INIT, IBV_QP_PORT);
        to(each, IBV_QPS_RTR, 0);
        to(each, IBV_QPS_RTS, 0);
    }
    memset(memory, 0xff, 64);
    struct ibv_sge sge = piece(0, 64);
    struct ibv_recv_wr recv = { 1, NULL, &sge, 1 }, *bad_recv;
    CHECK(!ibv_post_recv(qp, &recv, &bad_recv));
    struct ibv_send_wr send = { .wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED }, *bad;
    CHECK(!ibv_post_send(qp, &send, &bad));
    struct ibv_wc wc = next();
    CHECK(wc.wr_id == 2 && wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND);
    send.send_flags |= IBV_SEND_IP_CSUM;
    FAILS(ibv_post_send(qp, &send, &bad), EINVAL);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(extended);
    ex->wr_id = 3;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 60);
    CHECK(!ibv_wr_complete(ex));
    wc = next();
    CHECK(wc.wr_id == 3 && wc.status == IBV_WC_SUCCESS);
    to(qp, IBV_QPS_ERR, 0);
    wc = next();
    CHECK(wc.wr_id == 1 && wc.status == IBV_WC_WR_FLUSH_ERR);
    CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_qp(extended));
    close_all();
    return 0;
}
"#,
    );
}

/// Two receivers, one for a port of UDP and one for the rest; a frame that neither has room for.
#[test]
fn frames_are_steered_by_rules() {
    run_with(
        "steering",
        &[],
        r#"
static struct ibv_wc receive(struct ibv_qp *qp, int port, int length) {
    memset(memory, 0, sizeof memory);
    memory[12] = 8;
    memory[14] = 0x45;
    memory[23] = 17;
    memory[36] = port >> 8;
    memory[37] = port;
    struct ibv_sge sge = piece(0, length);
    struct ibv_send_wr send = { .wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND },
        *bad;
    CHECK(!ibv_post_send(qp, &send, &bad));
    struct ibv_wc wc = next();
    CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV);
    return wc;
}

int main(void) {
    open_all();
    struct ibv_qp *qps[2];
    for (int at = 0; at < 2; at++) {
        CHECK((qps[at] = new_qp(IBV_QPT_RAW_PACKET)));
        to(qps[at], IBV_QPS_INIT, IBV_QP_PORT);
        to(qps[at], IBV_QPS_RTR, 0);
        to(qps[at], IBV_QPS_RTS, 0);
        struct ibv_sge sge = piece(4096, 2048);
        struct ibv_recv_wr recv = { at, NULL, &sge, 1 }, *bad_recv;
        CHECK(!ibv_post_recv(qps[at], &recv, &bad_recv));
        recv.wr_id += 10;
        CHECK(!ibv_post_recv(qps[at], &recv, &bad_recv));
    }
    struct {
        struct ibv_flow_attr attr;
        struct ibv_flow_spec_tcp_udp udp;
    } __attribute__((packed)) rule = {
        { .size = sizeof rule, .num_of_specs = 1, .port = 1 },
        { IBV_FLOW_SPEC_UDP, sizeof rule.udp, { .dst_port = htons(99) }, { .dst_port = 0xffff } },
    };
    struct ibv_flow_attr rest = { .type = IBV_FLOW_ATTR_ALL_DEFAULT, .port = 1 };
    struct ibv_flow *all = ibv_create_flow(qps[0], &rest);
    struct ibv_flow *one = ibv_create_flow(qps[1], &rule.attr);
    CHECK(all && one);
    struct ibv_wc wc = receive(qps[0], 99, 100);
    CHECK(wc.wr_id == 1 && wc.byte_len == 100 && memory[4096 + 37] == 99);
    wc = receive(qps[0], 98, 60);
    CHECK(wc.wr_id == 0 && wc.byte_len == 60 && memory[4096 + 37] == 98);
    /* No room: dropped, and the receive stays for the next. */
    struct ibv_sge sge = piece(0, 2049);
    struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
    CHECK(!ibv_post_send(qps[0], &send, &bad));
    wc = receive(qps[0], 97, 60);
    CHECK(wc.wr_id == 10 && wc.byte_len == 60);
    rule.udp.size = 8;
    CHECK(!ibv_create_flow(qps[0], &rule.attr) && errno == EINVAL);
    rule.udp.type = IBV_FLOW_SPEC_ESP;
    CHECK(!ibv_create_flow(qps[0], &rule.attr) && errno == EOPNOTSUPP);
    rest.type = IBV_FLOW_ATTR_SNIFFER;
    CHECK(!ibv_create_flow(qps[0], &rest) && errno == EOPNOTSUPP);
    rest.type = IBV_FLOW_ATTR_MC_DEFAULT;
    struct ibv_qp *ud = new_qp(IBV_QPT_UD);
    CHECK(!ibv_create_flow(ud, &rest) && errno == EINVAL);
    CHECK(ibv_destroy_qp(qps[0]) == EBUSY);
    CHECK(!ibv_destroy_flow(all) && !ibv_destroy_flow(one) && !ibv_destroy_qp(ud));
    CHECK(!ibv_destroy_qp(qps[0]) && !ibv_destroy_qp(qps[1]));
    close_all();
    return 0;
}
"#,
    );
}

/// A UD QP that sends to itself by an address without a GRH, half of it to and from nothing.
#[test]
fn without_a_grh_the_device_itself_is_meant_where_so_set() {
    run_with(
        "no_grh",
        &[("FERROCE_NO_GRH", "own")],
        r#"
int main(void) {
    open_all();
    struct ibv_qp *qp = new_qp(IBV_QPT_UD);
    CHECK(qp);
    to(qp, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    to(qp, IBV_QPS_RTR, 0);
    to(qp, IBV_QPS_RTS, IBV_QP_SQ_PSN);
    struct ibv_ah_attr attr = { .dlid = 1, .port_num = 1 };
    struct ibv_ah *ah = ibv_create_ah(pd, &attr);
    CHECK(ah);
    struct ibv_mr *nothing = ibv_alloc_null_mr(pd);
    CHECK(nothing);
    memset(memory, 'x', sizeof memory);
    struct ibv_sge to_nothing[2] = { { 0x1234, 40 + 8, nothing->lkey }, piece(0, 16) };
    struct ibv_recv_wr recv = { 1, NULL, to_nothing, 2 }, *bad_recv;
    CHECK(!ibv_post_recv(qp, &recv, &bad_recv));
    struct ibv_sge from_nothing[2] = { piece(100, 8), { 0x1234, 8, nothing->lkey } };
    struct ibv_send_wr send = { .sg_list = from_nothing, .num_sge = 2, .opcode = IBV_WR_SEND,
        .wr.ud = { ah, qp->qp_num, 7 } }, *bad;
    CHECK(!ibv_post_send(qp, &send, &bad));
    struct ibv_wc wc = next();
    CHECK(wc.wr_id == 1 && wc.status == IBV_WC_SUCCESS && wc.byte_len == 40 + 16);
    CHECK(!memcmp(memory, "\0\0\0\0\0\0\0\0xxxx", 12));
    CHECK(ibv_dealloc_pd(pd) == EBUSY);
    CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_ah(ah) && !ibv_dereg_mr(nothing));
    close_all();
    return 0;
}
"#,
    );
}
