/* A device with a domain, a CQ with a channel and registered memory; pairs of QPs between
 * themselves. Each check prints the line it is on when it fails. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <infiniband/verbs.h>

#define CHECK(x) do { if (!(x)) { \
    printf("line %d: %s (errno %d)\n", __LINE__, #x, errno); exit(1); } } while (0)
#define FAILS(x, e) do { errno = 0; CHECK((x) == (e)); CHECK(errno == (e)); } while (0)

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static char memory[1 << 16];
static union ibv_gid gid;

static void open_all(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0]);
    CHECK((context = ibv_open_device(list[0])));
    ibv_free_device_list(list);
    CHECK((pd = ibv_alloc_pd(context)));
    CHECK((channel = ibv_create_comp_channel(context)));
    CHECK((cq = ibv_create_cq(context, 64, &cq, channel, 0)));
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ
        | IBV_ACCESS_REMOTE_ATOMIC;
    CHECK((mr = ibv_reg_mr(pd, memory, sizeof memory, access)));
    CHECK(!ibv_query_gid(context, 1, 1, &gid));
}

static void close_all(void) {
    CHECK(!ibv_dereg_mr(mr));
    CHECK(!ibv_destroy_cq(cq));
    CHECK(!ibv_destroy_comp_channel(channel));
    CHECK(!ibv_dealloc_pd(pd));
    CHECK(!ibv_close_device(context));
}

static struct ibv_qp *new_qp(enum ibv_qp_type type, uint64_t ops) {
    struct ibv_qp_init_attr_ex init = {
        .qp_type = type, .send_cq = cq, .recv_cq = cq, .pd = pd,
        .cap = { 8, 8, 2, 2, 64 }, .comp_mask = IBV_QP_INIT_ATTR_PD,
    };
    if (ops) {
        init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        init.send_ops_flags = ops;
    }
    struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
    CHECK(qp && qp->state == IBV_QPS_RESET);
    return qp;
}

static void to_init(struct ibv_qp *qp) {
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = 15 };
    CHECK(!ibv_modify_qp(qp, &attr,
        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
    CHECK(qp->state == IBV_QPS_INIT);
}

static void connect_to(struct ibv_qp *qp, struct ibv_qp *peer) {
    to_init(qp);
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num,
        .ah_attr = { .is_global = 1, .port_num = 1, .dlid = 0xc123,
            .grh = { .dgid = gid, .sgid_index = 1, .hop_limit = 64 } },
        .max_dest_rd_atomic = 4, .max_rd_atomic = 4, .min_rnr_timer = 12,
        .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
    };
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN
        | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    attr.qp_state = IBV_QPS_RTS;
    CHECK(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT
        | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
    CHECK(qp->state == IBV_QPS_RTS);
}

static struct ibv_wc next(void) {
    struct ibv_wc wc;
    int count;
    while (!(count = ibv_poll_cq(cq, 1, &wc)));
    CHECK(count == 1);
    return wc;
}

static struct ibv_sge piece(size_t offset, uint32_t length) {
    return (struct ibv_sge){ (uintptr_t)memory + offset, length, mr->lkey };
}
