//! What a C program sees of completion queues, shared receive queues, XRC domains and their events.

mod common;

fn run(name: &str, body: &str) {
    common::run_silent(common::PAIR, name, &[], body);
}

#[test]
fn a_destroyed_qp_takes_its_completions_and_no_others() {
    run(
        "destroyed_completions",
        r#"
/* A WRITE whose completion is in the CQ when this returns, not polled. */
static void write_and_wait(struct ibv_qp *from, uint64_t wr_id) {
    struct ibv_sge sge = piece(0, 8);
    struct ibv_send_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1,
        .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = { (uintptr_t)memory + 64, mr->rkey } }, *bad;
    struct ibv_cq *told;
    void *cookie;
    CHECK(!ibv_req_notify_cq(cq, 0) && !ibv_post_send(from, &wr, &bad));
    CHECK(!ibv_get_cq_event(channel, &told, &cookie) && told == cq);
    ibv_ack_cq_events(cq, 1);
}

int main(void) {
    open_all();
    struct ibv_qp *pairs[3][2];
    for (int pair = 0; pair < 3; pair++) {
        struct ibv_qp *a = pairs[pair][0] = new_qp(IBV_QPT_RC, 0);
        struct ibv_qp *b = pairs[pair][1] = new_qp(IBV_QPT_RC, 0);
        connect_to(a, b);
        connect_to(b, a);
    }
    for (int pair = 0; pair < 3; pair++)
        write_and_wait(pairs[pair][0], pair);
    /* Receives that nothing has come for vanish too. */
    struct ibv_sge sge = piece(0, 8);
    struct ibv_recv_wr recv = { .wr_id = 9, .sg_list = &sge, .num_sge = 1 }, *bad;
    CHECK(!ibv_post_recv(pairs[1][0], &recv, &bad));
    CHECK(!ibv_destroy_qp(pairs[1][0]));
    struct ibv_wc wc = next();
    CHECK(wc.wr_id == 0 && wc.qp_num == pairs[0][0]->qp_num && wc.status == IBV_WC_SUCCESS);
    wc = next();
    CHECK(wc.wr_id == 2 && wc.qp_num == pairs[2][0]->qp_num && wc.status == IBV_WC_SUCCESS);
    CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
    /* The CQ has the room again, and goes on telling. */
    write_and_wait(pairs[0][0], 3);
    CHECK(!ibv_destroy_qp(pairs[0][0]));
    CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
    write_and_wait(pairs[2][0], 4);
    CHECK(next().wr_id == 4);
    CHECK(!ibv_destroy_qp(pairs[0][1]) && !ibv_destroy_qp(pairs[1][1]));
    CHECK(!ibv_destroy_qp(pairs[2][0]) && !ibv_destroy_qp(pairs[2][1]));
    close_all();
    return 0;
}
"#,
    );
}

#[test]
fn a_cq_waits_for_the_events_of_its_channel() {
    run(
        "waits_for_events",
        r#"
static void *acknowledge(void *got) {
    usleep(50000);
    ibv_ack_cq_events(got, 1);
    return NULL;
}

int main(void) {
    open_all();
    struct ibv_qp *a = new_qp(IBV_QPT_RC, 0), *b = new_qp(IBV_QPT_RC, 0);
    connect_to(a, b);
    connect_to(b, a);
    CHECK(channel->refcnt == 1);
    FAILS(ibv_destroy_comp_channel(channel), EBUSY);
    FAILS(ibv_destroy_cq(cq), EBUSY);
    CHECK(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
    struct ibv_cq *got;
    void *cookie;
    errno = 0;
    CHECK(ibv_get_cq_event(channel, &got, &cookie) == -1 && errno == EAGAIN);
    CHECK(fcntl(channel->fd, F_SETFL, 0) == 0);

    struct ibv_sge sge = piece(0, 8);
    struct ibv_send_wr write = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = { (uintptr_t)memory + 64, mr->rkey } }, *bad;
    for (int round = 0; round < 3; round++) {
        CHECK(!ibv_req_notify_cq(cq, 0));
        CHECK(!ibv_post_send(a, &write, &bad));
        if (round < 2) {
            CHECK(!ibv_get_cq_event(channel, &got, &cookie) && got == cq && cookie == &cq);
            CHECK(next().status == IBV_WC_SUCCESS);
        }
    }
    CHECK(next().status == IBV_WC_SUCCESS); /* its event is left unread */
    ibv_ack_cq_events(cq, 1);
    CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_dereg_mr(mr));
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, acknowledge, cq));
    CHECK(!ibv_destroy_cq(cq));
    CHECK(!pthread_join(thread, NULL));
    CHECK(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
    errno = 0;
    CHECK(ibv_get_cq_event(channel, &got, &cookie) == -1 && errno == EAGAIN);
    CHECK(channel->refcnt == 0 && !ibv_destroy_comp_channel(channel));
    CHECK(!ibv_dealloc_pd(pd) && !ibv_close_device(context));
    return 0;
}
"#,
    );
}

#[test]
fn xrc_targets_are_shared_and_reach_any_srq_of_their_domain() {
    run(
        "xrc",
        r#"
int main(void) {
    open_all();
    int fd = open(".", O_RDONLY), other = open(".", O_RDONLY);
    struct ibv_xrcd_init_attr of_file = { .comp_mask = 3, .fd = fd, .oflags = 0 };
    errno = 0;
    CHECK(!ibv_open_xrcd(context, &of_file) && errno == EAGAIN);
    of_file.oflags = O_CREAT;
    struct ibv_xrcd *xrcd = ibv_open_xrcd(context, &of_file);
    of_file.fd = other;
    struct ibv_xrcd *same = ibv_open_xrcd(context, &of_file);
    CHECK(xrcd && same);
    of_file.oflags = O_CREAT | O_EXCL;
    CHECK(!ibv_open_xrcd(context, &of_file) && errno == EINVAL);

    struct ibv_srq_init_attr_ex srq_init = { .attr = { 8, 1 }, .srq_type = IBV_SRQT_XRC, .pd = pd,
        .xrcd = same, .cq = cq, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD
            | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ };
    struct ibv_srq *srq = ibv_create_srq_ex(context, &srq_init);
    uint32_t number = 0;
    CHECK(srq && !ibv_get_srq_num(srq, &number) && number);
    struct ibv_qp_init_attr_ex init = { .qp_type = IBV_QPT_XRC_RECV, .xrcd = xrcd,
        .comp_mask = IBV_QP_INIT_ATTR_XRCD };
    struct ibv_qp *target = ibv_create_qp_ex(context, &init), *send = new_qp(IBV_QPT_XRC_SEND, 0);
    CHECK(target);
    struct ibv_qp_open_attr open_attr = { .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD,
        .qp_num = target->qp_num, .xrcd = same };
    struct ibv_qp *again = ibv_open_qp(context, &open_attr);
    CHECK(again && again->qp_num == target->qp_num);
    open_attr.qp_num = send->qp_num;
    CHECK(!ibv_open_qp(context, &open_attr) && errno == EINVAL);
    connect_to(target, send);
    connect_to(send, target);
    CHECK(!ibv_destroy_qp(target)); /* the other handle keeps it */

    struct ibv_sge to = piece(0, 64), from = piece(128, 4);
    struct ibv_recv_wr recv = { 1, NULL, &to, 1 }, *bad_recv;
    CHECK(!ibv_post_srq_recv(srq, &recv, &bad_recv));
    struct ibv_send_wr wr = { .wr_id = 2, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND,
        .qp_type.xrc.remote_srqn = number }, *bad;
    memcpy(memory + 128, "xrc", 4);
    CHECK(!ibv_post_send(send, &wr, &bad));
    struct ibv_wc wc = next();
    CHECK(wc.wr_id == 1 && wc.status == IBV_WC_SUCCESS && !strcmp(memory, "xrc"));

    FAILS(ibv_close_xrcd(xrcd) ?: ibv_close_xrcd(same), EBUSY);
    CHECK(!ibv_destroy_qp(again) && !ibv_destroy_qp(send) && !ibv_destroy_srq(srq));
    CHECK(!ibv_close_xrcd(same));
    close_all();
    return 0;
}
"#,
    );
}

#[test]
fn the_readers_tell_what_a_completion_holds() {
    run(
        "readers",
        r#"
int main(void) {
    open_all();
    struct ibv_cq_init_attr_ex init = { .cqe = 16, .wc_flags = IBV_WC_EX_WITH_TM_INFO };
    errno = 0;
    CHECK(!ibv_create_cq_ex(context, &init) && errno == EOPNOTSUPP);
    init.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
        | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    init.comp_vector = context->num_comp_vectors;
    CHECK(!ibv_create_cq_ex(context, &init) && errno == EINVAL);
    init.comp_vector = 0;
    struct ibv_cq_ex *ex = ibv_create_cq_ex(context, &init);
    struct ibv_cq *plain = cq;
    CHECK(ex);
    cq = ibv_cq_ex_to_cq(ex);
    struct ibv_qp *a = new_qp(IBV_QPT_RC, 0), *b = new_qp(IBV_QPT_RC, 0);
    connect_to(a, b);
    connect_to(b, a);
    struct ibv_poll_cq_attr poll = {};
    CHECK(ibv_start_poll(ex, &poll) == ENOENT);
    struct ibv_sge to = piece(0, 8), from = piece(8, 8);
    struct ibv_recv_wr recv = { 11, NULL, &to, 1 }, *bad_recv;
    struct ibv_send_wr send = { .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM,
        .imm_data = htobe32(7) }, *bad;
    CHECK(!ibv_post_recv(b, &recv, &bad_recv) && !ibv_post_recv(b, &recv, &bad_recv));
    CHECK(!ibv_post_send(a, &send, &bad) && !ibv_post_send(a, &send, &bad));
    int status;
    while ((status = ibv_start_poll(ex, &poll)) == ENOENT);
    CHECK(!status && ex->wr_id == 11 && ex->status == IBV_WC_SUCCESS);
    CHECK(ibv_wc_read_opcode(ex) == IBV_WC_RECV && ibv_wc_read_byte_len(ex) == 8);
    CHECK(be32toh(ibv_wc_read_imm_data(ex)) == 7);
    CHECK(ibv_wc_read_wc_flags(ex) == IBV_WC_WITH_IMM && ibv_wc_read_qp_num(ex) == b->qp_num);
    uint64_t at = ibv_wc_read_completion_ts(ex), wall = ibv_wc_read_completion_wallclock_ns(ex);
    CHECK(at && wall / 1000000000 + 60 > (uint64_t)time(NULL));
    while ((status = ibv_next_poll(ex)) == ENOENT) {
        ibv_end_poll(ex);
        while ((status = ibv_start_poll(ex, &poll)) == ENOENT);
        break;
    }
    CHECK(!status && ibv_wc_read_completion_ts(ex) >= at);
    CHECK(ibv_next_poll(ex) == ENOENT);
    ibv_end_poll(ex);
    CHECK(!ibv_resize_cq(cq, 32) && cq->cqe >= 32);
    FAILS(ibv_resize_cq(cq, 0), EINVAL);
    CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b) && !ibv_destroy_cq(cq));
    cq = plain;
    close_all();
    return 0;
}
"#,
    );
}

#[test]
fn a_reset_takes_the_completions_away() {
    run(
        "reset",
        r#"
int main(void) {
    open_all();
    struct ibv_qp *a = new_qp(IBV_QPT_RC, 0), *b = new_qp(IBV_QPT_RC, 0);
    connect_to(a, b);
    connect_to(b, a);
    struct ibv_sge sge = piece(0, 8);
    struct ibv_recv_wr recv = { 1, NULL, &sge, 1 }, *bad;
    CHECK(!ibv_post_recv(a, &recv, &bad) && !ibv_post_recv(b, &recv, &bad));
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
    CHECK(!ibv_modify_qp(a, &attr, IBV_QP_STATE) && !ibv_modify_qp(b, &attr, IBV_QP_STATE));
    attr.qp_state = IBV_QPS_RESET;
    CHECK(!ibv_modify_qp(a, &attr, IBV_QP_STATE) && a->state == IBV_QPS_RESET);
    struct ibv_wc wc = next();
    CHECK(wc.qp_num == b->qp_num && wc.status == IBV_WC_WR_FLUSH_ERR);
    CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
    connect_to(a, b);
    CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b));
    close_all();
    return 0;
}
"#,
    );
}

#[test]
fn an_srq_tells_of_its_limit_and_outlives_the_event() {
    run(
        "srq_limit",
        r#"
static struct ibv_async_event event;

static void *acknowledge(void *nothing) {
    usleep(50000);
    ibv_ack_async_event(&event);
    return nothing;
}

int main(void) {
    open_all();
    struct ibv_srq_init_attr srq_init = { .attr = { 4, 1 } };
    struct ibv_srq *srq = ibv_create_srq(pd, &srq_init);
    CHECK(srq);
    struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq,
        .srq = srq, .cap = { 4, 0, 1, 0, 0 } };
    struct ibv_qp *a = new_qp(IBV_QPT_RC, 0), *b = ibv_create_qp(pd, &init);
    CHECK(b);
    connect_to(a, b);
    connect_to(b, a);
    struct ibv_sge sge = piece(0, 8);
    struct ibv_recv_wr recv = { 1, NULL, &sge, 1 }, *bad_recv;
    FAILS(ibv_post_recv(b, &recv, &bad_recv), EINVAL);
    for (int count = 0; count < 4; count++)
        CHECK(!ibv_post_srq_recv(srq, &recv, &bad_recv));
    FAILS(ibv_post_srq_recv(srq, &recv, &bad_recv), ENOMEM);
    CHECK(bad_recv == &recv);
    struct ibv_srq_attr attr = { .srq_limit = 4 };
    CHECK(!ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
    CHECK(!ibv_query_srq(srq, &attr) && attr.srq_limit == 4 && attr.max_wr >= 4);
    attr.srq_limit = 5;
    FAILS(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), EINVAL);
    struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
    CHECK(!ibv_post_send(a, &send, &bad));
    CHECK(next().wr_id == 1);
    CHECK(!ibv_get_async_event(context, &event));
    CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq);
    FAILS(ibv_destroy_srq(srq), EBUSY);
    CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b));
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, acknowledge, NULL));
    CHECK(!ibv_destroy_srq(srq));
    CHECK(!pthread_join(thread, NULL));
    close_all();
    return 0;
}
"#,
    );
}
