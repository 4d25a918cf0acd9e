//! Connections of librdmacm in the hands of programs and peers that do what nobody should.

mod common;

/// Compiles and runs a program that begins with `cm.h` and prints only what is wrong.
fn run(name: &str, variables: &[(&str, &str)], body: &str) {
    const PRELUDE: &str = include_str!("common/cm.h");
    let folder = common::library_folder(&format!("cm-abuse-{name}"));
    let source = format!("{PRELUDE}\n#line 1\n{body}");
    let libraries = ["-lrdmacm", "-libverbs", "-lpthread"];
    let Some(program) = common::compile(&folder, &source, &libraries) else { return };
    assert_eq!(common::run_with(&folder, &program, variables), "");
}

#[test]
fn id_moves_to_the_channel_it_is_in() {
    run(
        "same-channel",
        &[],
        r#"
int main(void) {
    struct rdma_event_channel *channel = new_channel();
    struct rdma_cm_id *id = new_id(channel, RDMA_PS_TCP), *other = new_id(channel, RDMA_PS_TCP);
    CHECK(!rdma_resolve_addr(id, NULL, at("127.0.0.1", 1), 1));
    CHECK(!rdma_resolve_addr(other, NULL, at("127.0.0.1", 1), 1));
    CHECK(!rdma_migrate_id(id, channel));
    struct rdma_cm_event *event = WANT(channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
    CHECK(event->id == id && !rdma_ack_cm_event(event));
    PASS(channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
    CHECK(!rdma_destroy_id(id) && !rdma_destroy_id(other));
}
"#,
    );
}

#[test]
fn ids_move_both_ways_at_once() {
    run(
        "crossing",
        &[],
        r#"
static struct rdma_event_channel *channels[2];
static struct rdma_cm_id *ids[2];

static void *move(void *which) {
    struct rdma_cm_id *id = ids[(intptr_t)which];
    for (int turn = 0; turn < 2000; turn++) {
        int to = ((intptr_t)which + turn + 1) % 2;
        CHECK(!rdma_migrate_id(id, channels[to]) && id->channel == channels[to]);
    }
    return NULL;
}

int main(void) {
    for (int i = 0; i < 2; i++) channels[i] = new_channel();
    for (int i = 0; i < 2; i++) {
        ids[i] = new_id(channels[i], RDMA_PS_TCP);
        CHECK(!rdma_resolve_addr(ids[i], NULL, at("127.0.0.1", 1), 1));
        CHECK(!rdma_resolve_route(ids[i], 1));
    }
    pthread_t threads[2];
    for (intptr_t i = 0; i < 2; i++)
        CHECK(!pthread_create(&threads[i], NULL, move, (void *)i));
    for (int i = 0; i < 2; i++) CHECK(!pthread_join(threads[i], NULL));
    for (int i = 0; i < 2; i++) {
        struct rdma_cm_event *event = WANT(channels[i], RDMA_CM_EVENT_ADDR_RESOLVED, 0);
        CHECK(event->id == ids[i] && !rdma_ack_cm_event(event));
        PASS(channels[i], RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
        CHECK(!rdma_destroy_id(ids[i]));
    }
}
"#,
    );
}

#[test]
fn what_becomes_of_a_refused_request_is_not_told_the_listener() {
    run(
        "refused",
        &[],
        r#"
int main(void) {
    struct rdma_event_channel *there = new_channel(), *here = new_channel();
    struct rdma_cm_id *listener = new_listener(there, "127.0.0.1", RDMA_PS_TCP);
    int port = ntohs(rdma_get_src_port(listener));
    /* A request for another service than the listener's, taken back before anybody looks. */
    struct rdma_addrinfo to = { .ai_qp_type = IBV_QPT_UC, .ai_port_space = RDMA_PS_TCP,
        .ai_dst_addr = at("127.0.0.1", port) };
    struct rdma_cm_id *id;
    CHECK(!rdma_create_ep(&id, &to, NULL, NULL) && !rdma_migrate_id(id, here));
    new_qp(id);
    CHECK(!rdma_connect(id, NULL));
    struct pollfd waiting = { there->fd, POLLIN };
    CHECK(poll(&waiting, 1, -1) == 1);
    destroy(id);
    connect_pair(there, here, listener, "127.0.0.1");
    disconnect_pair(there, here);
    destroy(listener);
}
"#,
    );
}

#[test]
fn a_port_that_cannot_be_listened_on_everywhere_is_listened_on_nowhere() {
    run(
        "half",
        &[("FERROCE_ADDR", "192.0.2.1,192.0.2.2")],
        r#"
int main(void) {
    struct rdma_event_channel *channel = new_channel();
    struct rdma_cm_id *ids[3];
    const char *addresses[] = { "192.0.2.2", "0.0.0.0", "192.0.2.1" };
    int on = 1;
    for (int i = 0; i < 3; i++) {
        ids[i] = new_id(channel, RDMA_PS_TCP);
        CHECK(!rdma_set_option(ids[i], RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on));
        CHECK(!rdma_bind_addr(ids[i], at(addresses[i], 7471)));
    }
    CHECK(!rdma_listen(ids[0], 1));
    FAILS(rdma_listen(ids[1], 1), EADDRINUSE);
    CHECK(!rdma_listen(ids[2], 1));
    for (int i = 0; i < 3; i++) CHECK(!rdma_destroy_id(ids[i]));
}
"#,
    );
}

#[test]
fn a_connection_that_is_over_gives_back_what_its_qp_holds() {
    run(
        "over",
        &[],
        r#"
enum { RECEIVES = 8 };

int main(void) {
    struct rdma_event_channel *there = new_channel(), *here = new_channel();
    struct rdma_cm_id *listener = new_listener(there, "127.0.0.1", RDMA_PS_TCP);
    /* Whoever ends it: the other side does nothing but hear of it. */
    for (int turn = 0; turn < 2; turn++) {
        connect_pair(there, here, listener, "127.0.0.1");
        struct rdma_cm_id *active = turn ? server : client, *passive = turn ? client : server;
        char buffer[64];
        struct ibv_mr *mr = rdma_reg_msgs(passive, buffer, sizeof buffer);
        CHECK(mr);
        for (int i = 0; i < RECEIVES; i++)
            CHECK(!rdma_post_recv(passive, NULL, buffer, sizeof buffer, mr));
        CHECK(!rdma_disconnect(active));
        PASS(turn ? here : there, RDMA_CM_EVENT_DISCONNECTED, 0);
        struct ibv_wc wc;
        for (int i = 0; i < RECEIVES; i++)
            CHECK(rdma_get_recv_comp(passive, &wc) == 1 && wc.status == IBV_WC_WR_FLUSH_ERR);
        PASS(turn ? there : here, RDMA_CM_EVENT_DISCONNECTED, 0);
        CHECK(!rdma_dereg_mr(mr));
        destroy(client);
        destroy(server);
    }
    /* A QP that is gone when the news comes. */
    connect_pair(there, here, listener, "127.0.0.1");
    CHECK(!rdma_disconnect(client));
    rdma_destroy_qp(server);
    PASS(there, RDMA_CM_EVENT_DISCONNECTED, 0);
    PASS(here, RDMA_CM_EVENT_DISCONNECTED, 0);
    destroy(client);
    destroy(server);
    destroy(listener);
}
"#,
    );
}

#[test]
fn a_port_may_be_shared_until_it_is_listened_on() {
    run(
        "share",
        &[],
        r#"
int main(void) {
    struct rdma_event_channel *channel = new_channel();
    struct rdma_cm_id *listener = new_listener(channel, "127.0.0.1", RDMA_PS_TCP);
    struct rdma_cm_id *id = new_id(channel, RDMA_PS_TCP);
    route_to(id, "127.0.0.1", 1);
    int on = 1, off = 0;
    CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on));
    FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &off, sizeof off), EINVAL);
    FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof on), EINVAL);
    FAILS(rdma_set_option(listener, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on),
          EINVAL);
    destroy(id);
    destroy(listener);
}
"#,
    );
}

#[test]
fn ack_timeouts_are_those_of_the_option_and_of_the_request() {
    run(
        "ack-timeout",
        &[],
        r#"
static int timeout_of(struct rdma_cm_id *id) {
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(!ibv_query_qp(id->qp, &attr, IBV_QP_TIMEOUT, &init));
    return attr.timeout;
}

int main(void) {
    struct rdma_event_channel *there = new_channel(), *here = new_channel();
    struct rdma_cm_id *listener = new_listener(there, "127.0.0.1", RDMA_PS_TCP);
    /* What is asked for, and what follows from it where 2^15 is the time to acknowledge. */
    uint8_t codes[][2] = { { 0, 15 }, { 1, 15 }, { 14, 16 }, { 31, 31 } };
    for (int i = 0; i < 4; i++) {
        client = new_client(here, "127.0.0.1", listener);
        CHECK(!rdma_set_option(client, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, codes[i], 1));
        CHECK(!rdma_connect(client, NULL));
        struct rdma_cm_event *event = WANT(there, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
        server = event->id;
        CHECK(!rdma_ack_cm_event(event));
        new_qp(server);
        CHECK(!rdma_accept(server, NULL));
        PASS(here, RDMA_CM_EVENT_ESTABLISHED, 0);
        PASS(there, RDMA_CM_EVENT_ESTABLISHED, 0);
        CHECK(timeout_of(client) == codes[i][0] && timeout_of(server) == codes[i][1]);
        disconnect_pair(there, here);
    }
    destroy(listener);
}
"#,
    );
}

#[test]
fn calls_out_of_order_are_refused_and_change_nothing() {
    run(
        "order",
        &[],
        r#"
int main(void) {
    struct rdma_event_channel *first = new_channel(), *channel = new_channel();
    struct rdma_cm_id *listener = new_listener(first, "127.0.0.1", RDMA_PS_TCP);
    struct rdma_cm_id *id = new_id(first, RDMA_PS_TCP), *peer;
    struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
    struct rdma_conn_param param = { .qp_num = 0x1000010, .responder_resources = 255,
        .initiator_depth = 255, .retry_count = 200, .rnr_retry_count = 200 };
    int mask;
    FAILS(rdma_init_qp_attr(id, &attr, &mask), EINVAL);
    FAILS(rdma_connect(id, &param), EINVAL);
    FAILS(rdma_establish(id), EINVAL);
    FAILS(rdma_notify(id, IBV_EVENT_COMM_EST), EINVAL);
    FAILS(rdma_accept(id, &param), EINVAL);
    FAILS(rdma_reject(id, NULL, 0), EINVAL);
    FAILS(rdma_disconnect(id), EINVAL);
    FAILS(rdma_leave_multicast(id, at("239.0.0.1", 0)), EADDRNOTAVAIL);
    FAILS(rdma_get_request(listener, &peer), EINVAL);
    route_to(id, "127.0.0.1", ntohs(rdma_get_src_port(listener)));
    CHECK(!rdma_init_qp_attr(id, &attr, &mask));
    attr.qp_state = IBV_QPS_RTR;
    FAILS(rdma_init_qp_attr(id, &attr, &mask), EINVAL);
    CHECK(!rdma_connect(id, &param));
    FAILS(rdma_connect(id, &param), EINVAL);
    FAILS(rdma_establish(id), EINVAL);
    /* Both move while they connect. */
    CHECK(!rdma_migrate_id(id, channel) && !rdma_migrate_id(listener, channel));
    struct rdma_cm_event *event = WANT(channel, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    peer = event->id;
    CHECK(peer->channel == channel && event->param.conn.qp_num == 0x10);
    CHECK(event->param.conn.retry_count == 7 && event->param.conn.rnr_retry_count == 7);
    CHECK(!rdma_ack_cm_event(event));
    for (attr.qp_state = IBV_QPS_INIT; attr.qp_state <= IBV_QPS_RTS; attr.qp_state++)
        CHECK(!rdma_init_qp_attr(peer, &attr, &mask));
    FAILS(rdma_init_qp_attr(peer, &attr, &mask), EINVAL);
    FAILS(rdma_connect(peer, &param), EINVAL);
    FAILS(rdma_establish(peer), EINVAL);
    FAILS(rdma_notify(peer, IBV_EVENT_COMM_EST), EINVAL);
    FAILS(rdma_listen(peer, 1), EINVAL);
    FAILS(rdma_bind_addr(peer, at("127.0.0.1", 0)), EINVAL);
    FAILS(rdma_resolve_addr(peer, NULL, at("127.0.0.1", 1), 1), EINVAL);
    param.responder_resources = 200;
    FAILS(rdma_accept(peer, &param), EINVAL);
    param.responder_resources = 255;
    param.qp_num = 0x22;
    CHECK(!rdma_accept(peer, &param));
    FAILS(rdma_accept(peer, &param), EINVAL);
    PASS(channel, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
    CHECK(!rdma_notify(peer, IBV_EVENT_COMM_EST));
    FAILS(rdma_notify(peer, IBV_EVENT_PATH_MIG), EINVAL);
    PASS(channel, RDMA_CM_EVENT_ESTABLISHED, 0);
    CHECK(!rdma_establish(id));
    FAILS(rdma_establish(id), EINVAL);
    FAILS(rdma_reject(id, NULL, 0), EINVAL);
    CHECK(!rdma_disconnect(id) && !rdma_disconnect(peer));
    PASS(channel, RDMA_CM_EVENT_DISCONNECTED, 0);
    PASS(channel, RDMA_CM_EVENT_DISCONNECTED, 0);
    destroy(id);
    destroy(peer);
    destroy(listener);
}
"#,
    );
}

#[test]
fn a_client_that_goes_in_any_state_leaves_the_listener_at_work() {
    run(
        "leaving",
        &[],
        r#"
int main(void) {
    struct rdma_event_channel *there = new_channel(), *here = new_channel();
    struct rdma_cm_id *listener = new_listener(there, "127.0.0.1", RDMA_PS_TCP);
    int port = ntohs(rdma_get_src_port(listener));
    for (int step = 0; step < 8; step++) {
        struct rdma_event_channel *channel = new_channel();
        struct rdma_cm_id *left = NULL;
        client = new_id(channel, RDMA_PS_TCP);
        if (step == 1) CHECK(!rdma_resolve_addr(client, NULL, at("127.0.0.1", port), 1000));
        if (step > 1) {
            route_to(client, "127.0.0.1", port);
            new_qp(client);
        }
        if (step > 2) CHECK(!rdma_connect(client, NULL));
        if (step > 3) {
            struct rdma_cm_event *event = WANT(there, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
            left = event->id;
            CHECK(!rdma_ack_cm_event(event));
            new_qp(left);
        }
        if (step > 4) CHECK(!rdma_accept(left, NULL));
        if (step > 5) {
            PASS(channel, RDMA_CM_EVENT_ESTABLISHED, 0);
            PASS(there, RDMA_CM_EVENT_ESTABLISHED, 0);
        }
        if (step > 6) CHECK(!rdma_disconnect(left));
        /* With events that nobody has got. */
        destroy(client);
        rdma_destroy_event_channel(channel);
        if (step == 3) {
            struct rdma_cm_event *event = WANT(there, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
            left = event->id;
            CHECK(!rdma_ack_cm_event(event));
            new_qp(left);
        }
        if (step == 5) PASS(there, RDMA_CM_EVENT_REJECTED, 28);
        if (step > 5) PASS(there, RDMA_CM_EVENT_DISCONNECTED, 0);
        connect_pair(there, here, listener, "127.0.0.1");
        disconnect_pair(there, here);
        /* That has arrived: so has what was sent before. */
        if (step == 3 || step == 4) FAILS(rdma_accept(left, NULL), EINVAL);
        if (left) destroy(left);
    }
    destroy(listener);
}
"#,
    );
}

#[test]
fn a_request_whose_qp_cannot_be_made_is_rejected() {
    run(
        "no-qp",
        &[],
        r#"
int main(void) {
    struct rdma_event_channel *here = new_channel();
    struct rdma_addrinfo from = { .ai_flags = RAI_PASSIVE, .ai_qp_type = IBV_QPT_RC,
        .ai_port_space = RDMA_PS_TCP, .ai_src_addr = at("127.0.0.1", 0) };
    struct ibv_qp_init_attr huge = { .cap = { 1 << 30, 1, 1, 1, 0 } };
    struct rdma_cm_id *listener, *id;
    CHECK(!rdma_create_ep(&listener, &from, NULL, &huge) && !rdma_listen(listener, 0));
    id = new_client(here, "127.0.0.1", listener);
    CHECK(!rdma_connect(id, NULL));
    struct rdma_cm_id *none = NULL;
    FAILS(rdma_get_request(listener, &none), EINVAL);
    CHECK(!none);
    PASS(here, RDMA_CM_EVENT_REJECTED, 28);
    destroy(id);
    rdma_destroy_ep(listener);
}
"#,
    );
}
