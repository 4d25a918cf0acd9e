//! Connections of librdmacm: programs in C that are both ends.

mod common;

/// Compiles and runs a program that begins with `cm.h` and prints only what is wrong.
fn run(name: &str, variables: &[(&str, &str)], body: &str) {
    const PRELUDE: &str = include_str!("common/cm.h");
    let folder = common::library_folder(&format!("cm-{name}"));
    let source = format!("{PRELUDE}\n#line 1\n{body}");
    let libraries = ["-lrdmacm", "-libverbs", "-lpthread"];
    let Some(program) = common::compile(&folder, &source, &libraries) else { return };
    assert_eq!(common::run_with(&folder, &program, variables), "");
}

/// Two addresses, each a device of its own.
const TWO: [(&str, &str); 1] = [("FERROCE_ADDR", "192.0.2.1,192.0.2.2")];

#[test]
fn connection_carries_data_and_ends() {
    run(
        "data",
        &TWO,
        r#"
int main(void) {
    struct rdma_event_channel *there = new_channel(), *here = new_channel();
    struct rdma_cm_id *listener = new_listener(there, "192.0.2.2", RDMA_PS_TCP);
    CHECK(listener->verbs);
    connect_pair(there, here, listener, "192.0.2.2");
    CHECK(client->verbs == listener->verbs && server->verbs == listener->verbs);
    CHECK(rdma_get_dst_port(server) == rdma_get_src_port(client));
    CHECK(rdma_get_src_port(server) == rdma_get_dst_port(client));
    char buffer[2][64] = { "", "hello" };
    struct ibv_mr *to = rdma_reg_msgs(server, buffer[0], 64);
    struct ibv_mr *from = rdma_reg_msgs(client, buffer[1], 64);
    CHECK(to && from);
    CHECK(!rdma_post_recv(server, NULL, buffer[0], 64, to));
    CHECK(!rdma_post_send(client, NULL, buffer[1], 64, from, IBV_SEND_SIGNALED));
    struct ibv_wc wc;
    CHECK(rdma_get_recv_comp(server, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    CHECK(rdma_get_send_comp(client, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    CHECK(!strcmp(buffer[0], "hello"));
    CHECK(!rdma_post_recv(server, NULL, buffer[0], 64, to));
    CHECK(!rdma_disconnect(server));
    CHECK(rdma_get_recv_comp(server, &wc) == 1 && wc.status == IBV_WC_WR_FLUSH_ERR);
    PASS(here, RDMA_CM_EVENT_DISCONNECTED, 0);
    CHECK(!rdma_dereg_mr(to) && !rdma_dereg_mr(from));
    destroy(client);
    destroy(server);
    destroy(listener);
    rdma_destroy_event_channel(there);
    rdma_destroy_event_channel(here);
}
"#,
    );
}

#[test]
fn private_data_goes_both_ways_up_to_its_bounds() {
    run(
        "private",
        &TWO,
        r#"
int main(void) {
    struct rdma_event_channel *there = new_channel(), *here = new_channel();
    struct rdma_cm_id *listener = new_listener(there, "192.0.2.2", RDMA_PS_TCP);
    char data[200];
    for (int i = 0; i < 200; i++) data[i] = i;
    struct rdma_cm_id *id = new_client(here, "192.0.2.2", listener);
    struct rdma_conn_param param = { .private_data = data, .private_data_len = 57,
        .responder_resources = 3, .initiator_depth = 5, .retry_count = 6, .rnr_retry_count = 4 };
    FAILS(rdma_connect(id, &param), EINVAL);
    param.private_data_len = 56;
    CHECK(!rdma_connect(id, &param));
    struct rdma_cm_event *event = WANT(there, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    struct rdma_cm_id *peer = event->id;
    struct rdma_conn_param *got = &event->param.conn;
    CHECK(got->private_data_len == 56 && !memcmp(got->private_data, data, 56));
    CHECK(got->responder_resources == 5 && got->initiator_depth == 3);
    CHECK(got->retry_count == 6 && got->rnr_retry_count == 4 && got->qp_num == id->qp->qp_num);
    CHECK(!rdma_ack_cm_event(event));
    new_qp(peer);
    param.private_data_len = 197;
    FAILS(rdma_accept(peer, &param), EINVAL);
    param.private_data_len = 196;
    param.responder_resources = 2;
    param.initiator_depth = 3;
    CHECK(!rdma_accept(peer, &param));
    event = WANT(here, RDMA_CM_EVENT_ESTABLISHED, 0);
    got = &event->param.conn;
    CHECK(got->private_data_len == 196 && !memcmp(got->private_data, data, 196));
    CHECK(got->responder_resources == 3 && got->initiator_depth == 2);
    CHECK(!rdma_ack_cm_event(event));
    PASS(there, RDMA_CM_EVENT_ESTABLISHED, 0);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(!ibv_query_qp(id->qp, &attr, 0, &init));
    CHECK(attr.max_rd_atomic == 2 && attr.max_dest_rd_atomic == 3 && attr.retry_cnt == 6);
    CHECK(!ibv_query_qp(peer->qp, &attr, 0, &init));
    CHECK(attr.max_rd_atomic == 3 && attr.max_dest_rd_atomic == 2 && attr.retry_cnt == 6);
    CHECK(attr.rnr_retry == 4 && attr.dest_qp_num == id->qp->qp_num);
    destroy(id);
    PASS(there, RDMA_CM_EVENT_DISCONNECTED, 0);
    destroy(peer);
    destroy(listener);
}
"#,
    );
}

#[test]
fn rejections_say_why() {
    run(
        "reject",
        &TWO,
        r#"
int main(void) {
    struct rdma_event_channel *there = new_channel(), *here = new_channel();
    struct rdma_cm_id *listener = new_listener(there, "192.0.2.2", RDMA_PS_TCP);
    struct rdma_cm_id *id = new_client(here, "192.0.2.2", listener);
    CHECK(!rdma_connect(id, NULL));
    struct rdma_cm_event *event = WANT(there, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    struct rdma_cm_id *peer = event->id;
    CHECK(!rdma_ack_cm_event(event));
    FAILS(rdma_reject(peer, "long", 149), EINVAL);
    CHECK(!rdma_reject(peer, "no", 2));
    event = WANT(here, RDMA_CM_EVENT_REJECTED, 28);
    CHECK(event->param.conn.private_data_len == 148);
    CHECK(!memcmp(event->param.conn.private_data, "no", 3));
    CHECK(!rdma_ack_cm_event(event));
    CHECK(id->qp->state == IBV_QPS_ERR);
    FAILS(rdma_connect(id, NULL), EINVAL);
    destroy(id);
    CHECK(!rdma_destroy_id(peer));

    /* A request nobody looks at is refused when the id, or the listener, goes away. */
    id = new_client(here, "192.0.2.2", listener);
    CHECK(!rdma_connect(id, NULL));
    event = WANT(there, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    peer = event->id;
    CHECK(!rdma_ack_cm_event(event) && !rdma_destroy_id(peer));
    PASS(here, RDMA_CM_EVENT_REJECTED, 28);
    destroy(id);
    id = new_client(here, "192.0.2.2", listener);
    struct rdma_cm_id *late = new_client(here, "192.0.2.2", listener);
    CHECK(!rdma_connect(id, NULL));
    struct pollfd waiting = { there->fd, POLLIN };
    CHECK(poll(&waiting, 1, -1) == 1);
    CHECK(!rdma_destroy_id(listener));
    CHECK(poll(&waiting, 1, 0) == 0);
    PASS(here, RDMA_CM_EVENT_REJECTED, 28);
    destroy(id);
    /* Nobody listens. */
    CHECK(!rdma_connect(late, NULL));
    PASS(here, RDMA_CM_EVENT_REJECTED, 8);
    destroy(late);
}
"#,
    );
}

#[test]
fn addresses_and_ports_that_cannot_be() {
    run(
        "address",
        &TWO,
        r#"
int main(void) {
    struct rdma_event_channel *channel = new_channel();
    struct rdma_cm_id *id = new_id(channel, RDMA_PS_TCP), *other = new_id(channel, RDMA_PS_TCP);
    FAILS(rdma_resolve_addr(id, NULL, NULL, 1), EINVAL);
    CHECK(!rdma_resolve_addr(id, NULL, at("192.0.2.99", 1), 1));
    PASS(channel, RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH);
    CHECK(!id->verbs);
    FAILS(rdma_resolve_addr(id, at("192.0.2.99", 0), at("192.0.2.1", 1), 1), EADDRNOTAVAIL);
    FAILS(rdma_resolve_addr(id, at("::1", 0), at("192.0.2.1", 1), 1), EINVAL);
    FAILS(rdma_resolve_route(id, 1), EINVAL);
    FAILS(rdma_bind_addr(id, at("192.0.2.99", 0)), EADDRNOTAVAIL);
    FAILS(rdma_bind_addr(id, NULL), EINVAL);
    CHECK(!rdma_bind_addr(id, at("192.0.2.1", 7471)));
    CHECK(id->verbs && rdma_get_src_port(id) == htons(7471));
    FAILS(rdma_bind_addr(id, at("192.0.2.1", 7472)), EINVAL);
    FAILS(rdma_bind_addr(other, at("192.0.2.1", 7471)), EADDRINUSE);
    FAILS(rdma_bind_addr(other, at("0.0.0.0", 7471)), EADDRINUSE);
    CHECK(!rdma_bind_addr(other, at("192.0.2.2", 7471)));
    struct rdma_cm_id *datagrams = new_id(channel, RDMA_PS_UDP);
    CHECK(!rdma_bind_addr(datagrams, at("192.0.2.1", 7471)));
    CHECK(!rdma_destroy_id(datagrams) && !rdma_destroy_id(other) && !rdma_destroy_id(id));
    int on = 1;
    for (int turn = 0; turn < 2; turn++) {
        id = new_id(channel, RDMA_PS_TCP);
        other = new_id(channel, RDMA_PS_TCP);
        CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on));
        CHECK(!rdma_set_option(other, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on));
        CHECK(!rdma_bind_addr(id, at("0.0.0.0", 7471)) && !id->verbs);
        CHECK(!rdma_bind_addr(other, at("0.0.0.0", 7471)));
        CHECK(!rdma_listen(id, 1));
        FAILS(rdma_listen(other, 1), EADDRINUSE);
        CHECK(!rdma_destroy_id(id) && !rdma_destroy_id(other));
    }
    /* IPv4 and IPv6 apart. */
    id = new_id(channel, RDMA_PS_TCP);
    other = new_id(channel, RDMA_PS_TCP);
    CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof on));
    CHECK(!rdma_bind_addr(id, at("::", 7471)) && !rdma_bind_addr(other, at("0.0.0.0", 7471)));
    CHECK(!rdma_listen(id, 1) && !rdma_listen(other, 1));
    CHECK(!rdma_destroy_id(id) && !rdma_destroy_id(other));
    rdma_destroy_event_channel(channel);
}
"#,
    );
}

#[test]
fn nobody_answers_for_a_listener_on_another_device() {
    run(
        "listener",
        &TWO,
        r#"
int main(void) {
    struct rdma_event_channel *there = new_channel(), *here = new_channel();
    struct rdma_cm_id *all = new_id(there, RDMA_PS_TCP);
    CHECK(!rdma_listen(all, 1));
    int port = ntohs(rdma_get_src_port(all));
    CHECK(port >= 32768);
    const char *addresses[] = { "192.0.2.1", "192.0.2.2", "127.0.0.1" };
    for (int i = 0; i < 3; i++) {
        connect_pair(there, here, all, addresses[i]);
        char text[16];
        inet_ntop(AF_INET, &server->route.addr.src_sin.sin_addr, text, sizeof text);
        CHECK(!strcmp(text, addresses[i]));
        disconnect_pair(there, here);
    }
    CHECK(!rdma_destroy_id(all));
    struct rdma_cm_id *one = new_listener(there, "192.0.2.1", RDMA_PS_TCP);
    struct rdma_cm_id *id = new_client(here, "192.0.2.2", one);
    CHECK(!rdma_connect(id, NULL));
    PASS(here, RDMA_CM_EVENT_REJECTED, 8);
    destroy(id);
    destroy(one);
}
"#,
    );
}

#[test]
fn destruction_waits_for_events_in_the_programs_hands_and_takes_back_others() {
    run(
        "destroy",
        &[],
        r#"
static void *acknowledge(void *event) {
    CHECK(!rdma_ack_cm_event(event));
    return NULL;
}

int main(void) {
    struct rdma_event_channel *channel = new_channel();
    struct rdma_cm_id *id = new_id(channel, RDMA_PS_TCP);
    CHECK(!rdma_resolve_addr(id, NULL, at("127.0.0.1", 1), 1));
    struct rdma_cm_event *event = WANT(channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
    CHECK(!rdma_resolve_route(id, 1));
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, acknowledge, event));
    CHECK(!rdma_destroy_id(id) && !pthread_join(thread, NULL));
    CHECK(!fcntl(channel->fd, F_SETFL, O_NONBLOCK));
    FAILS(rdma_get_cm_event(channel, &event), EAGAIN);
    FAILS(rdma_get_cm_event(NULL, &event), EINVAL);
    FAILS(rdma_get_cm_event(channel, NULL), EINVAL);
    FAILS(rdma_ack_cm_event(NULL), EINVAL);
    FAILS(rdma_destroy_id(NULL), EINVAL);
    FAILS(rdma_create_id(channel, &id, NULL, 0x107), EINVAL);
    FAILS(rdma_create_id(channel, NULL, NULL, RDMA_PS_TCP), EINVAL);
    rdma_destroy_event_channel(channel);
}
"#,
    );
}

#[test]
fn migration_takes_pending_events_along() {
    run(
        "migrate",
        &[],
        r#"
int main(void) {
    struct rdma_event_channel *first = new_channel(), *second = new_channel();
    struct rdma_cm_id *id = new_id(first, RDMA_PS_TCP), *other = new_id(first, RDMA_PS_TCP);
    CHECK(!rdma_resolve_addr(id, NULL, at("127.0.0.1", 1), 1));
    CHECK(!rdma_resolve_route(id, 1));
    CHECK(!rdma_resolve_addr(other, NULL, at("127.0.0.1", 1), 1));
    CHECK(!rdma_migrate_id(id, second) && id->channel == second);
    struct rdma_cm_event *event = WANT(first, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
    CHECK(event->id == other && !rdma_ack_cm_event(event));
    PASS(second, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
    PASS(second, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
    /* To a channel of its own, and back. */
    CHECK(!rdma_migrate_id(other, NULL) && other->channel != first);
    CHECK(!rdma_resolve_route(other, 1));
    CHECK(other->event->event == RDMA_CM_EVENT_ROUTE_RESOLVED);
    FAILS(rdma_migrate_id(other, NULL), EINVAL);
    CHECK(!rdma_migrate_id(other, first) && !other->event);
    CHECK(!rdma_destroy_id(id) && !rdma_destroy_id(other));
    rdma_destroy_event_channel(first);
    rdma_destroy_event_channel(second);
}
"#,
    );
}

#[test]
fn endpoints_wait_for_their_events() {
    run(
        "endpoint",
        &[],
        r#"
static void *serve(void *listener) {
    struct rdma_cm_id *id;
    CHECK(!rdma_get_request(listener, &id));
    CHECK(id->qp && id->event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(!rdma_accept(id, NULL));
    CHECK(!rdma_disconnect(id));
    rdma_destroy_ep(id);
    CHECK(!rdma_get_request(listener, &id));
    CHECK(!rdma_reject(id, NULL, 0));
    rdma_destroy_ep(id);
    return NULL;
}

int main(void) {
    struct ibv_qp_init_attr init = { .cap = { 1, 1, 1, 1, 16 }, .qp_type = IBV_QPT_RC };
    struct rdma_addrinfo info = { .ai_flags = RAI_PASSIVE, .ai_qp_type = IBV_QPT_RC,
        .ai_port_space = RDMA_PS_TCP, .ai_src_addr = at("0.0.0.0", 0) };
    struct rdma_cm_id *listener, *id;
    CHECK(!rdma_create_ep(&listener, &info, NULL, &init) && !rdma_listen(listener, 4));
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, serve, listener));
    struct rdma_addrinfo to = { .ai_qp_type = IBV_QPT_RC, .ai_port_space = RDMA_PS_TCP,
        .ai_dst_addr = at("127.0.0.1", ntohs(rdma_get_src_port(listener))) };
    CHECK(!rdma_create_ep(&id, &to, NULL, &init) && id->qp);
    CHECK(!rdma_connect(id, NULL) && id->event->event == RDMA_CM_EVENT_ESTABLISHED);
    CHECK(!rdma_disconnect(id));
    rdma_destroy_ep(id);
    init.send_cq = init.recv_cq = NULL;
    CHECK(!rdma_create_ep(&id, &to, NULL, &init));
    FAILS(rdma_connect(id, NULL), ECONNREFUSED);
    rdma_destroy_ep(id);
    CHECK(!pthread_join(thread, NULL));
    rdma_destroy_ep(listener);
    FAILS(rdma_create_ep(&id, &to, NULL, NULL) || rdma_connect(id, NULL) ? -1 : 0, EINVAL);
    rdma_destroy_ep(id);
}
"#,
    );
}

#[test]
fn datagram_services_are_resolved_to_their_qp() {
    run(
        "datagram",
        &TWO,
        r#"
int main(void) {
    struct rdma_event_channel *there = new_channel(), *here = new_channel();
    struct rdma_cm_id *listener = new_listener(there, "192.0.2.2", RDMA_PS_UDP);
    struct rdma_cm_id *id = new_client(here, "192.0.2.2", listener);
    struct rdma_conn_param param = { .private_data = "ask", .private_data_len = 3 };
    CHECK(!rdma_connect(id, &param));
    struct rdma_cm_event *event = WANT(there, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    CHECK(event->param.ud.private_data_len == 180);
    CHECK(!strcmp(event->param.ud.private_data, "ask"));
    struct rdma_cm_id *peer = event->id;
    CHECK(!rdma_ack_cm_event(event));
    new_qp(peer);
    param.private_data = "tell";
    param.private_data_len = 5;
    CHECK(!rdma_accept(peer, &param));
    event = WANT(here, RDMA_CM_EVENT_ESTABLISHED, 0);
    struct rdma_ud_param *ud = &event->param.ud;
    CHECK(ud->private_data_len == 136 && !strcmp(ud->private_data, "tell"));
    CHECK(ud->qp_num == peer->qp->qp_num && ud->qkey == RDMA_UDP_QKEY);
    CHECK(ud->ah_attr.is_global && ud->ah_attr.port_num == 1);
    char buffer[2][104] = { "", "datagram" };
    struct ibv_mr *to = rdma_reg_msgs(peer, buffer[0], 104);
    struct ibv_mr *from = rdma_reg_msgs(id, buffer[1], 104);
    struct ibv_ah *ah = ibv_create_ah(id->pd, &ud->ah_attr);
    CHECK(to && from && ah);
    CHECK(!rdma_post_recv(peer, NULL, buffer[0], 104, to));
    CHECK(!rdma_post_ud_send(id, NULL, buffer[1], 64, from, IBV_SEND_SIGNALED, ah, ud->qp_num));
    struct ibv_wc wc;
    CHECK(rdma_get_recv_comp(peer, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    CHECK(!strcmp(buffer[0] + 40, "datagram"));
    CHECK(!rdma_ack_cm_event(event) && !ibv_destroy_ah(ah));
    CHECK(!rdma_dereg_mr(to) && !rdma_dereg_mr(from));
    destroy(id);
    destroy(peer);
    /* One that does not want to, and one that is not there. */
    id = new_client(here, "192.0.2.2", listener);
    CHECK(!rdma_connect(id, &param));
    event = WANT(there, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    CHECK(!rdma_reject(event->id, NULL, 0));
    peer = event->id;
    CHECK(!rdma_ack_cm_event(event) && !rdma_destroy_id(peer));
    PASS(here, RDMA_CM_EVENT_UNREACHABLE, 2);
    destroy(id);
    id = new_client(here, "192.0.2.2", listener);
    destroy(listener);
    CHECK(!rdma_connect(id, &param));
    PASS(here, RDMA_CM_EVENT_UNREACHABLE, 1);
    destroy(id);
}
"#,
    );
}

#[test]
fn groups_are_joined_and_left() {
    run(
        "multicast",
        &[],
        r#"
int main(void) {
    struct rdma_event_channel *channel = new_channel();
    struct rdma_cm_id *id = new_id(channel, RDMA_PS_UDP);
    CHECK(!rdma_resolve_addr(id, NULL, at("239.1.2.3", 0), 1));
    PASS(channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
    new_qp(id);
    struct rdma_cm_id *sender = new_id(channel, RDMA_PS_UDP);
    CHECK(!rdma_bind_addr(sender, at("127.0.0.1", 0)));
    new_qp(sender);
    FAILS(rdma_join_multicast(id, at("192.0.2.1", 0), NULL), EINVAL);
    FAILS(rdma_leave_multicast(id, at("239.1.2.3", 0)), EADDRNOTAVAIL);
    int marker;
    CHECK(!rdma_join_multicast(id, at("239.1.2.3", 0), &marker));
    struct rdma_cm_event *event = WANT(channel, RDMA_CM_EVENT_MULTICAST_JOIN, 0);
    struct rdma_ud_param ud = event->param.ud;
    CHECK(ud.private_data == &marker && ud.qp_num == 0xffffff && ud.qkey == RDMA_UDP_QKEY);
    static const uint8_t group[16] = { [10] = 0xff, 0xff, 239, 1, 2, 3 };
    CHECK(!memcmp(ud.ah_attr.grh.dgid.raw, group, 16));
    CHECK(!rdma_ack_cm_event(event));
    char buffer[2][104] = { "", "to all" };
    struct ibv_mr *mr = rdma_reg_msgs(id, buffer, sizeof buffer);
    struct ibv_ah *ah = ibv_create_ah(id->pd, &ud.ah_attr);
    CHECK(mr && ah && !rdma_post_recv(id, NULL, buffer[0], 104, mr));
    CHECK(!rdma_post_ud_send(sender, NULL, buffer[1], 64, mr, IBV_SEND_SIGNALED, ah, ud.qp_num));
    struct ibv_wc wc;
    CHECK(rdma_get_recv_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
    CHECK(!strcmp(buffer[0] + 40, "to all"));
    CHECK(!ibv_destroy_ah(ah) && !rdma_dereg_mr(mr));
    CHECK(ibv_destroy_qp(id->qp) == EBUSY);
    CHECK(!rdma_leave_multicast(id, at("239.1.2.3", 0)));
    /* Left before anybody was told. */
    CHECK(!rdma_join_multicast(id, at("ff0e::1", 0), NULL));
    CHECK(!rdma_leave_multicast(id, at("ff0e::1", 0)));
    struct pollfd nothing = { channel->fd, POLLIN };
    CHECK(poll(&nothing, 1, 0) == 0);
    destroy(id);
    destroy(sender);
}
"#,
    );
}

#[test]
fn program_moves_its_own_qp() {
    run(
        "external",
        &[],
        r#"
static struct ibv_qp *own_qp(struct rdma_cm_id *id, struct ibv_cq *cq) {
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .cap = { 1, 1, 1, 1, 0 },
        .qp_type = IBV_QPT_RC };
    struct ibv_qp *qp = ibv_create_qp(id->pd, &init);
    CHECK(qp);
    return qp;
}

static void move(struct rdma_cm_id *id, struct ibv_qp *qp, enum ibv_qp_state state) {
    struct ibv_qp_attr attr = { .qp_state = state };
    int mask;
    CHECK(!rdma_init_qp_attr(id, &attr, &mask) && !ibv_modify_qp(qp, &attr, mask));
}

int main(void) {
    struct rdma_event_channel *there = new_channel(), *here = new_channel();
    struct rdma_cm_id *listener = new_listener(there, "127.0.0.1", RDMA_PS_TCP);
    struct rdma_cm_id *id = new_id(here, RDMA_PS_TCP);
    route_to(id, "127.0.0.1", ntohs(rdma_get_src_port(listener)));
    FAILS(rdma_connect(id, NULL), EINVAL);
    struct ibv_cq *cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0);
    struct ibv_qp *qp = own_qp(id, cq);
    move(id, qp, IBV_QPS_INIT);
    struct ibv_qp_attr early = { .qp_state = IBV_QPS_RTR };
    int mask;
    FAILS(rdma_init_qp_attr(id, &early, &mask), EINVAL);
    struct rdma_conn_param param = { .qp_num = qp->qp_num, .responder_resources = 255,
        .initiator_depth = 255 };
    CHECK(!rdma_connect(id, &param));
    struct rdma_cm_event *event = WANT(there, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    struct rdma_cm_id *peer = event->id;
    CHECK(event->param.conn.qp_num == qp->qp_num && !rdma_ack_cm_event(event));
    struct ibv_qp *peers = own_qp(peer, cq);
    for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++) move(peer, peers, state);
    param.qp_num = peers->qp_num;
    CHECK(!rdma_accept(peer, &param));
    event = WANT(here, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
    CHECK(event->param.conn.qp_num == peers->qp_num && !rdma_ack_cm_event(event));
    for (int state = IBV_QPS_INIT; state <= IBV_QPS_RTS; state++) move(id, qp, state);
    CHECK(!rdma_establish(id));
    PASS(there, RDMA_CM_EVENT_ESTABLISHED, 0);
    CHECK(!rdma_disconnect(id));
    PASS(there, RDMA_CM_EVENT_DISCONNECTED, 0);
    PASS(here, RDMA_CM_EVENT_DISCONNECTED, 0);
    CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_qp(peers) && !ibv_destroy_cq(cq));
    CHECK(!rdma_destroy_id(id) && !rdma_destroy_id(peer) && !rdma_destroy_id(listener));
}
"#,
    );
}

#[test]
fn who_answers_a_request_that_was_taken_back_finds_out() {
    run(
        "given-up",
        &[],
        r#"
int main(void) {
    struct rdma_event_channel *there = new_channel(), *here = new_channel();
    struct rdma_cm_id *listener = new_listener(there, "127.0.0.1", RDMA_PS_TCP);
    struct rdma_cm_id *ids[2];
    for (int i = 0; i < 2; i++) {
        ids[i] = new_client(here, "127.0.0.1", listener);
        CHECK(!rdma_connect(ids[i], NULL));
    }
    struct rdma_cm_event *event = WANT(there, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    struct rdma_cm_id *first = event->id;
    CHECK(!rdma_ack_cm_event(event));
    destroy(ids[1]);
    event = WANT(there, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    struct rdma_cm_id *second = event->id;
    CHECK(!rdma_ack_cm_event(event));
    CHECK(!rdma_reject(first, NULL, 0));
    /* That has arrived: so has what was sent before. */
    PASS(here, RDMA_CM_EVENT_REJECTED, 28);
    /* Of an id that has not answered, Linux tells nothing. */
    FAILS(rdma_accept(second, &(struct rdma_conn_param){ .qp_num = 99 }), EINVAL);
    CHECK(!rdma_destroy_id(second) && !rdma_destroy_id(first));
    destroy(ids[0]);
    destroy(listener);
}
"#,
    );
}

#[test]
fn death_of_a_peer_ends_its_connections() {
    run(
        "death",
        &[],
        r#"
int main(void) {
    int ports[2];
    CHECK(!pipe(ports));
    pid_t child = fork();
    if (child == 0) {
        struct rdma_event_channel *there = new_channel();
        struct rdma_cm_id *listener = new_listener(there, "127.0.0.1", RDMA_PS_TCP);
        uint16_t port = ntohs(rdma_get_src_port(listener));
        CHECK(write(ports[1], &port, sizeof port) == sizeof port);
        struct rdma_cm_id *peer = WANT(there, RDMA_CM_EVENT_CONNECT_REQUEST, 0)->id;
        new_qp(peer);
        CHECK(!rdma_accept(peer, NULL));
        PASS(there, RDMA_CM_EVENT_ESTABLISHED, 0);
        WANT(there, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
        kill(getpid(), SIGKILL);
    }
    uint16_t port;
    CHECK(read(ports[0], &port, sizeof port) == sizeof port);
    struct rdma_event_channel *first = new_channel(), *second = new_channel();
    struct rdma_cm_id *connected = new_id(first, RDMA_PS_TCP);
    route_to(connected, "127.0.0.1", port);
    new_qp(connected);
    CHECK(!rdma_connect(connected, NULL));
    PASS(first, RDMA_CM_EVENT_ESTABLISHED, 0);
    struct rdma_cm_id *waiting = new_id(second, RDMA_PS_TCP);
    route_to(waiting, "127.0.0.1", port);
    new_qp(waiting);
    CHECK(!rdma_connect(waiting, NULL));
    PASS(first, RDMA_CM_EVENT_DISCONNECTED, 0);
    struct rdma_cm_event *event;
    CHECK(!rdma_get_cm_event(second, &event));
    CHECK(event->event == RDMA_CM_EVENT_REJECTED || event->event == RDMA_CM_EVENT_UNREACHABLE);
    CHECK(!rdma_ack_cm_event(event));
    destroy(connected);
    destroy(waiting);
    CHECK(waitpid(child, NULL, 0) == child);
}
"#,
    );
}

#[test]
fn options_and_events_of_the_program() {
    run(
        "options",
        &[("FERROCE_ADDR", "fd00::1,192.0.2.1")],
        r#"
int rdma_write_cm_event(struct rdma_cm_id *, int, int, uint64_t);

int main(void) {
    struct rdma_event_channel *there = new_channel(), *here = new_channel();
    struct rdma_cm_id *listener = new_listener(there, "::", RDMA_PS_TCP);
    struct rdma_cm_id *id = new_id(here, RDMA_PS_TCP);
    uint8_t tos = 0x28, timeout = 9, most = 32;
    CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1));
    CHECK(!rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1));
    FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &most, 1), EINVAL);
    FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 4), EINVAL);
    FAILS(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, NULL, 1), EINVAL);
    FAILS(rdma_set_option(id, 7, 7, &tos, 1), ENOSYS);
    int port = ntohs(rdma_get_src_port(listener));
    route_to(id, "fd00::1", port);
    struct ibv_sa_path_rec *path = id->route.path_rec;
    CHECK(path->traffic_class == 0x28 && path->dgid.raw[0] == 0xfd && path->sgid.raw[15] == 1);
    uint32_t label = (ntohs(rdma_get_src_port(id)) * 31 + port) & 0xfffff;
    CHECK(ntohl(path->flow_label) == label);
    new_qp(id);
    CHECK(!rdma_connect(id, NULL));
    struct rdma_cm_id *peer = WANT(there, RDMA_CM_EVENT_CONNECT_REQUEST, 0)->id;
    CHECK(peer->route.addr.src_addr.sa_family == AF_INET6);
    CHECK(peer->route.path_rec->traffic_class == 0x28);
    new_qp(peer);
    CHECK(!rdma_accept(peer, NULL));
    PASS(here, RDMA_CM_EVENT_ESTABLISHED, 0);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(!ibv_query_qp(id->qp, &attr, 0, &init));
    CHECK(attr.timeout == 9 && attr.ah_attr.grh.traffic_class == 0x28);
    CHECK(attr.max_rd_atomic == attr.max_dest_rd_atomic && attr.max_rd_atomic > 1);
    CHECK(!ibv_query_qp(peer->qp, &attr, 0, &init));
    CHECK(attr.ah_attr.grh.traffic_class == 0x28 && attr.ah_attr.grh.flow_label == label);
    /* Who listens on all IPv6 addresses hears of IPv4 too. */
    struct rdma_cm_id *other = new_client(here, "192.0.2.1", listener);
    CHECK(!rdma_connect(other, NULL));
    FAILS(rdma_write_cm_event(other, RDMA_CM_EVENT_ESTABLISHED, 0, 1), EINVAL);
    CHECK(!rdma_write_cm_event(other, 18, 3, 1ull << 40));
    struct rdma_cm_event *event = WANT(here, 18, 3);
    uint64_t argument;
    memcpy(&argument, &event->param, sizeof argument);
    CHECK(event->id == other && argument == 1ull << 40 && !rdma_ack_cm_event(event));
    PASS(there, RDMA_CM_EVENT_ESTABLISHED, 0);
    event = WANT(there, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    CHECK(event->id->route.addr.src_addr.sa_family == AF_INET);
    exit(0);
}
"#,
    );
}

#[test]
fn many_connections_at_a_time_and_none_left() {
    run(
        "many",
        &[],
        r#"
#define COUNT 1000
int main(void) {
    struct rdma_event_channel *there = new_channel(), *here = new_channel();
    struct rdma_cm_id *listener = new_listener(there, "127.0.0.1", RDMA_PS_TCP);
    static struct rdma_cm_id *clients[COUNT], *servers[COUNT];
    int port = ntohs(rdma_get_src_port(listener));
    for (int i = 0; i < COUNT; i++) {
        struct rdma_conn_param param = { .qp_num = 1000 + i };
        clients[i] = new_id(here, RDMA_PS_TCP);
        route_to(clients[i], "127.0.0.1", port);
        CHECK(!rdma_connect(clients[i], &param));
        struct rdma_cm_event *event = WANT(there, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
        servers[i] = event->id;
        param.qp_num += COUNT;
        CHECK(!rdma_ack_cm_event(event) && !rdma_accept(servers[i], &param));
        PASS(here, RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
        CHECK(!rdma_establish(clients[i]));
        PASS(there, RDMA_CM_EVENT_ESTABLISHED, 0);
    }
    for (int i = 0; i < COUNT; i++) CHECK(!rdma_destroy_id(clients[i]));
    for (int i = 0; i < COUNT; i++) PASS(there, RDMA_CM_EVENT_DISCONNECTED, 0);
    for (int i = 0; i < COUNT; i++) CHECK(!rdma_destroy_id(servers[i]));
    CHECK(!rdma_destroy_id(listener));
}
"#,
    );
}

#[test]
fn forked_child_has_no_ids_and_can_make_its_own() {
    run(
        "fork",
        &[],
        r#"
int main(void) {
    struct rdma_event_channel *there = new_channel(), *here = new_channel();
    struct rdma_cm_id *listener = new_listener(there, "127.0.0.1", RDMA_PS_TCP);
    pid_t child = fork();
    if (child == 0) {
        struct rdma_cm_event *event;
        FAILS(rdma_get_cm_event(there, &event), EINVAL);
        FAILS(rdma_listen(listener, 1), EINVAL);
        FAILS(rdma_destroy_id(listener), EINVAL);
        here = new_channel();
        struct rdma_cm_id *id = new_client(here, "127.0.0.1", listener);
        CHECK(!rdma_connect(id, NULL));
        PASS(here, RDMA_CM_EVENT_REJECTED, 28);
        destroy(id);
        _exit(0);
    }
    struct rdma_cm_event *event = WANT(there, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    struct rdma_cm_id *id = event->id;
    CHECK(!rdma_reject(id, NULL, 0) && !rdma_ack_cm_event(event) && !rdma_destroy_id(id));
    int status;
    CHECK(waitpid(child, &status, 0) == child && !status);
    connect_pair(there, here, listener, "127.0.0.1");
    disconnect_pair(there, here);
    destroy(listener);
}
"#,
    );
}
