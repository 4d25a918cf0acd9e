//! What a C program sees of queue pairs and of posting: one process whose queue pairs speak with
//! each other.

mod common;

fn run(name: &str, body: &str) {
    common::run_silent(common::PAIR, name, &[], body);
}

#[test]
fn a_list_is_posted_up_to_the_first_bad_work_request() {
    run(
        "posted_up_to",
        r#"
int main(void) {
    open_all();
    struct ibv_qp *a = new_qp(IBV_QPT_RC, 0), *b = new_qp(IBV_QPT_RC, 0);
    struct ibv_sge sges[40] = { piece(0, 8), piece(8, 8), piece(16, 8) };
    struct ibv_recv_wr recvs[3] = {
        { 1, &recvs[1], sges, 1 }, { 2, &recvs[2], sges, 3 }, { 3, NULL, sges, 1 } };
    struct ibv_recv_wr *bad_recv = NULL;
    FAILS(ibv_post_recv(b, recvs, &bad_recv), EINVAL);
    CHECK(bad_recv == &recvs[0]);
    connect_to(a, b);
    connect_to(b, a);
    FAILS(ibv_post_recv(b, recvs, &bad_recv), EINVAL);
    CHECK(bad_recv == &recvs[1]);
    struct ibv_send_wr sends[2] = {
        { .wr_id = 5, .next = &sends[1], .sg_list = &sges[1], .num_sge = 1,
          .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htobe32(0x01020304),
          .send_flags = IBV_SEND_SIGNALED },
        { .wr_id = 6, .sg_list = sges, .num_sge = -1, .opcode = IBV_WR_SEND } }, *bad_send = NULL;
    memcpy(memory + 8, "8 bytes.", 8);
    FAILS(ibv_post_send(a, sends, &bad_send), EINVAL);
    CHECK(bad_send == &sends[1]);
    struct ibv_wc wcs[2] = { next(), next() };
    struct ibv_wc *sent = &wcs[wcs[0].wr_id == 1], *received = &wcs[wcs[0].wr_id != 1];
    CHECK(sent->wr_id == 5 && sent->status == IBV_WC_SUCCESS && sent->qp_num == a->qp_num);
    CHECK(received->wr_id == 1 && received->opcode == IBV_WC_RECV && received->byte_len == 8);
    CHECK(received->wc_flags == IBV_WC_WITH_IMM && be32toh(received->imm_data) == 0x01020304);
    CHECK(!memcmp(memory, "8 bytes.", 8));

    sends[0] = (struct ibv_send_wr){ .sg_list = sges, .num_sge = 3, .opcode = IBV_WR_SEND };
    FAILS(ibv_post_send(a, sends, &bad_send), EINVAL);
    sends[0].num_sge = 1;
    sends[0].opcode = 14;
    FAILS(ibv_post_send(a, sends, &bad_send), EINVAL);
    sends[0].opcode = IBV_WR_SEND;
    sends[0].send_flags = IBV_SEND_INLINE;
    sges[0].length = 65;
    FAILS(ibv_post_send(a, sends, &bad_send), ENOMEM);
    recvs[0].next = recvs;
    FAILS(ibv_post_recv(b, recvs, &bad_recv), ENOMEM);
    CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b));
    struct ibv_wc none;
    CHECK(ibv_poll_cq(cq, 1, &none) == 0);
    close_all();
    return 0;
}
"#,
    );
}

#[test]
fn the_wr_calls_post_all_or_nothing() {
    run(
        "all_or_nothing",
        r#"
int main(void) {
    open_all();
    uint64_t ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ
        | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_WRITE;
    struct ibv_qp *a = new_qp(IBV_QPT_RC, ops), *b = new_qp(IBV_QPT_RC, 0);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(a);
    CHECK(ex && !ibv_qp_to_qp_ex(b));
    uint64_t there = (uintptr_t)memory + 4096;

    ibv_wr_start(ex);
    ex->wr_id = 1;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(ex, mr->rkey, there);
    ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8);
    CHECK(ibv_wr_complete(ex) == EINVAL); /* RESET */
    connect_to(a, b);
    connect_to(b, a);

    ibv_wr_start(ex);
    ibv_wr_rdma_write(ex, mr->rkey, there);
    ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8);
    ibv_wr_rdma_write(ex, mr->rkey, there);
    ibv_wr_set_sge_list(ex, 33, NULL);
    CHECK(ibv_wr_complete(ex) == EINVAL);
    ibv_wr_start(ex);
    for (int count = 0; count < 9; count++) {
        ibv_wr_rdma_write(ex, mr->rkey, there);
        ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, 8);
    }
    CHECK(ibv_wr_complete(ex) == ENOMEM);
    ibv_wr_start(ex);
    ibv_wr_rdma_write(ex, mr->rkey, there);
    ibv_wr_abort(ex);
    ibv_wr_set_sge(ex, mr->lkey, 0, 8); /* too late, of no effect */
    CHECK(ibv_wr_complete(ex) == EINVAL);
    struct ibv_wc none;
    CHECK(ibv_poll_cq(cq, 1, &none) == 0);

    char text[] = "taken when set";
    uint64_t word = 40;
    ibv_wr_start(ex);
    ex->wr_id = 2;
    ibv_wr_rdma_write(ex, mr->rkey, there);
    ibv_wr_set_inline_data(ex, text, sizeof text);
    memset(text, 0, sizeof text);
    ex->wr_id = 3;
    ibv_wr_rdma_read(ex, mr->rkey, there);
    ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory, sizeof text);
    ex->wr_id = 4;
    ibv_wr_atomic_write(ex, mr->rkey, there + 64, &word);
    ex->wr_id = 5;
    ibv_wr_atomic_fetch_add(ex, mr->rkey, there + 64, 2);
    ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)memory + 64, 8);
    CHECK(!ibv_wr_complete(ex));
    for (uint64_t id = 2; id <= 5; id++) {
        struct ibv_wc wc = next();
        CHECK(wc.wr_id == id && wc.status == IBV_WC_SUCCESS);
    }
    CHECK(!strcmp(memory, "taken when set"));
    uint64_t old, new;
    memcpy(&old, memory + 64, 8);
    memcpy(&new, memory + 4096 + 64, 8);
    CHECK(old == 40 && new == 42);
    CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b));
    close_all();
    return 0;
}
"#,
    );
}

#[test]
fn refused_modifications_change_nothing() {
    run(
        "refused_modifications",
        r#"
int main(void) {
    open_all();
    struct ibv_qp *qp = new_qp(IBV_QPT_RC, 0);
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 }, found;
    struct ibv_qp_init_attr init;
    int all = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    FAILS(ibv_modify_qp(qp, &attr, all & ~IBV_QP_PORT), EINVAL);
    FAILS(ibv_modify_qp(qp, &attr, all | IBV_QP_QKEY), EINVAL);
    attr.port_num = 2;
    FAILS(ibv_modify_qp(qp, &attr, all), EINVAL);
    attr.port_num = 1;
    attr.pkey_index = 1;
    FAILS(ibv_modify_qp(qp, &attr, all), EINVAL);
    attr.pkey_index = 0;
    attr.qp_state = 17;
    FAILS(ibv_modify_qp(qp, &attr, all), EINVAL);
    attr.qp_state = IBV_QPS_RTS;
    FAILS(ibv_modify_qp(qp, &attr, all), EINVAL);
    CHECK(!ibv_query_qp(qp, &found, IBV_QP_STATE, &init) && found.qp_state == IBV_QPS_RESET);
    to_init(qp);
    attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024,
        .ah_attr = { .is_global = 1, .port_num = 1, .grh = { .dgid = gid, .sgid_index = 1 } } };
    all = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
        | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    struct ibv_qp_attr wrong = attr;
    wrong.ah_attr.is_global = 0;
    FAILS(ibv_modify_qp(qp, &wrong, all), EINVAL);
    wrong = attr;
    wrong.ah_attr.grh.sgid_index = 77;
    FAILS(ibv_modify_qp(qp, &wrong, all), EINVAL);
    wrong = attr;
    wrong.path_mtu = 0;
    FAILS(ibv_modify_qp(qp, &wrong, all), EINVAL);
    wrong = attr;
    wrong.dest_qp_num = 1 << 24;
    FAILS(ibv_modify_qp(qp, &wrong, all), EINVAL);
    CHECK(qp->state == IBV_QPS_INIT);
    CHECK(!ibv_modify_qp(qp, &attr, all) && qp->state == IBV_QPS_RTR);
    CHECK(!ibv_query_qp(qp, &found, 0, &init));
    CHECK(found.path_mtu == IBV_MTU_1024 && found.ah_attr.grh.sgid_index == 1);
    CHECK(!memcmp(&found.ah_attr.grh.dgid, &gid, 16) && found.ah_attr.is_global);
    CHECK(init.send_cq == cq && init.qp_type == IBV_QPT_RC && init.cap.max_inline_data >= 64);

    struct ibv_qp_init_attr bad = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC };
    bad.cap.max_send_wr = 1 << 30;
    errno = 0;
    CHECK(!ibv_create_qp(pd, &bad) && errno == EINVAL);
    bad.cap.max_send_wr = 1;
    bad.qp_type = IBV_QPT_DRIVER;
    CHECK(!ibv_create_qp(pd, &bad) && errno == EOPNOTSUPP);
    bad.qp_type = IBV_QPT_UD;
    bad.recv_cq = NULL;
    CHECK(!ibv_create_qp(pd, &bad) && errno == EINVAL);
    CHECK(!ibv_destroy_qp(qp));
    close_all();
    return 0;
}
"#,
    );
}

#[test]
fn threads_share_queues() {
    run(
        "threads",
        r#"
enum { THREADS = 3, EACH = 2000 };
static struct ibv_qp *a, *b;
static struct ibv_qp_ex *ex;
static unsigned char seen[THREADS][EACH];
static int completed;

static void poll_some(void) {
    struct ibv_wc wcs[4];
    int count = ibv_poll_cq(cq, 4, wcs);
    CHECK(count >= 0);
    for (int at = 0; at < count; at++) {
        CHECK(wcs[at].status == IBV_WC_SUCCESS);
        CHECK(!__atomic_fetch_add(&seen[wcs[at].wr_id / EACH][wcs[at].wr_id % EACH], 1,
            __ATOMIC_RELAXED));
        __atomic_fetch_add(&completed, 1, __ATOMIC_RELAXED);
    }
}

static void *work(void *number) {
    uint64_t thread = (uintptr_t)number;
    struct ibv_sge sge = piece(64 * thread, 8);
    for (uint64_t count = 0; count < EACH; count++) {
        uint64_t wr_id = thread * EACH + count, to = (uintptr_t)memory + 4096 + 64 * thread;
        int code;
        do {
            if (count % 2) {
                ibv_wr_start(ex);
                ex->wr_id = wr_id;
                ex->wr_flags = IBV_SEND_SIGNALED;
                ibv_wr_rdma_write(ex, mr->rkey, to);
                ibv_wr_set_sge(ex, mr->lkey, sge.addr, 8);
                code = ibv_wr_complete(ex);
            } else {
                struct ibv_send_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1,
                    .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
                    .wr.rdma = { to, mr->rkey } }, *bad;
                code = ibv_post_send(a, &wr, &bad);
            }
            CHECK(code == 0 || code == ENOMEM);
            poll_some();
        } while (code);
    }
    return NULL;
}

int main(void) {
    open_all();
    a = new_qp(IBV_QPT_RC, IBV_QP_EX_WITH_RDMA_WRITE);
    b = new_qp(IBV_QPT_RC, 0);
    CHECK((ex = ibv_qp_to_qp_ex(a)));
    connect_to(a, b);
    connect_to(b, a);
    pthread_t threads[THREADS];
    for (uintptr_t thread = 0; thread < THREADS; thread++)
        CHECK(!pthread_create(&threads[thread], NULL, work, (void *)thread));
    for (int thread = 0; thread < THREADS; thread++)
        CHECK(!pthread_join(threads[thread], NULL));
    while (completed < THREADS * EACH)
        poll_some();
    CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b));
    close_all();
    return 0;
}
"#,
    );
}

#[test]
fn null_is_an_argument_like_any_other() {
    run(
        "null_data_path",
        r#"
int main(void) {
    struct ibv_cq *got;
    void *cookie;
    ibv_ack_cq_events(NULL, 1);
    FAILS(ibv_destroy_comp_channel(NULL), EINVAL);
    FAILS(ibv_destroy_cq(NULL), EINVAL);
    FAILS(ibv_resize_cq(NULL, 4), EINVAL);
    FAILS(ibv_destroy_qp(NULL), EINVAL);
    FAILS(ibv_modify_qp(NULL, NULL, 0), EINVAL);
    FAILS(ibv_query_qp(NULL, NULL, 0, NULL), EINVAL);
    FAILS(ibv_destroy_srq(NULL), EINVAL);
    FAILS(ibv_modify_srq(NULL, NULL, 0), EINVAL);
    FAILS(ibv_query_srq(NULL, NULL), EINVAL);
    FAILS(ibv_attach_mcast(NULL, NULL, 0), EINVAL);
    errno = 0;
    CHECK(!ibv_qp_to_qp_ex(NULL));
    CHECK(!ibv_create_comp_channel(NULL) && errno == EINVAL);
    CHECK(!ibv_create_cq(NULL, 1, NULL, NULL, 0) && errno == EINVAL);
    CHECK(!ibv_create_qp(NULL, NULL) && errno == EINVAL);
    CHECK(!ibv_create_srq(NULL, NULL) && errno == EINVAL);
    CHECK(ibv_get_cq_event(NULL, &got, &cookie) == -1 && errno == EINVAL);

    open_all();
    struct ibv_qp *qp = new_qp(IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
    CHECK(!ibv_query_qp(qp, NULL, 0, NULL));
    CHECK(!ibv_post_send(qp, NULL, NULL) && !ibv_post_recv(qp, NULL, NULL));
    connect_to(qp, qp);
    struct ibv_send_wr send = { .num_sge = 1, .opcode = IBV_WR_SEND };
    FAILS(ibv_post_send(qp, &send, NULL), EINVAL);
    struct ibv_recv_wr recv = { .num_sge = 1 };
    FAILS(ibv_post_recv(qp, &recv, NULL), EINVAL);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    ibv_wr_set_inline_data(ex, NULL, 8);
    CHECK(ibv_wr_complete(ex) == EINVAL);
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    ibv_wr_set_inline_data_list(ex, SIZE_MAX, NULL);
    CHECK(ibv_wr_complete(ex) == EINVAL);
    ibv_wr_start(ex);
    ibv_wr_set_ud_addr(ex, NULL, 1, 1);
    CHECK(ibv_wr_complete(ex) == EINVAL);
    CHECK(ibv_poll_cq(cq, 1, NULL) == -EINVAL && ibv_poll_cq(cq, -1, NULL) == 0);
    CHECK(!ibv_destroy_qp(qp));
    close_all();
    return 0;
}
"#,
    );
}

#[test]
fn what_fits_in_place_of_the_sges_is_sent_inline_unasked() {
    run(
        "inline_unasked",
        r#"
int main(void) {
    open_all();
    struct ibv_qp_init_attr init = {
        .qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .cap = { 8, 8, 2, 1, 0 },
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp && init.cap.max_inline_data == 2 * sizeof(struct ibv_sge));
    connect_to(qp, qp);
    char text[33] = "in place of the elements of list";
    struct ibv_sge sge = { (uintptr_t)text, 32, 0 };
    struct ibv_send_wr wr = {
        .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED,
        .sg_list = &sge, .num_sge = 1, .wr.rdma = { (uintptr_t)memory, mr->rkey },
    }, *bad;
    CHECK(!ibv_post_send(qp, &wr, &bad) && next().status == IBV_WC_SUCCESS);
    CHECK(!memcmp(memory, text, 32));
    sge.length = 33;
    CHECK(ibv_post_send(qp, &wr, &bad) == ENOMEM);
    CHECK(!ibv_destroy_qp(qp));
    close_all();
    return 0;
}
"#,
    );
}

#[test]
fn lists_of_sges_need_not_be_aligned() {
    run(
        "unaligned_list",
        r#"
int main(void) {
    open_all();
    struct ibv_qp *qp = new_qp(IBV_QPT_RC, 0);
    connect_to(qp, qp);
    struct { char odd; struct ibv_sge sges[2]; } __attribute__((packed)) from, to;
    from.sges[0] = (struct ibv_sge){ (uintptr_t)memory, 3, mr->lkey };
    from.sges[1] = (struct ibv_sge){ (uintptr_t)memory + 100, 5, mr->lkey };
    to.sges[0] = (struct ibv_sge){ (uintptr_t)memory + 1000, 4, mr->lkey };
    to.sges[1] = (struct ibv_sge){ (uintptr_t)memory + 2000, 4, mr->lkey };
    memcpy(memory, "abc", 3);
    memcpy(memory + 100, "defgh", 5);
    struct ibv_recv_wr recv = { .sg_list = (void *)((char *)&to + 1), .num_sge = 2 }, *bad_recv;
    CHECK(!ibv_post_recv(qp, &recv, &bad_recv));
    struct ibv_send_wr wr = {
        .opcode = IBV_WR_SEND, .sg_list = (void *)((char *)&from + 1), .num_sge = 2,
    }, *bad;
    CHECK(!ibv_post_send(qp, &wr, &bad) && next().status == IBV_WC_SUCCESS);
    CHECK(!memcmp(memory + 1000, "abcd", 4) && !memcmp(memory + 2000, "efgh", 4));
    recv.num_sge = 0;
    CHECK(!ibv_post_recv(qp, &recv, &bad_recv));
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.num_sge = 0;
    CHECK(!ibv_post_send(qp, &wr, &bad) && next().status == IBV_WC_SUCCESS);
    CHECK(!ibv_destroy_qp(qp));
    close_all();
    return 0;
}
"#,
    );
}
