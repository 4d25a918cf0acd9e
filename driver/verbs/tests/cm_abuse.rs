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
