/* Ids of librdmacm, and the events of both ends in one program. Each check prints the line it is
 * on when it fails. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define CHECK(x) do { if (!(x)) { \
    printf("line %d: %s (errno %d)\n", __LINE__, #x, errno); exit(1); } } while (0)
#define FAILS(x, e) do { errno = 0; CHECK((x) == -1); CHECK(errno == (e)); } while (0)
/* The next event of `channel`, which must be this one. */
#define WANT(channel, type, its_status) want(__LINE__, channel, type, its_status)
/* The same, acknowledged at once. */
#define PASS(channel, type, its_status) CHECK(!rdma_ack_cm_event(WANT(channel, type, its_status)))

static struct rdma_cm_event *want(int line, struct rdma_event_channel *channel,
                                  enum rdma_cm_event_type type, int status) {
    struct rdma_cm_event *event = NULL;
    if (rdma_get_cm_event(channel, &event) || event->event != type || event->status != status) {
        printf("line %d: %s, status %d\n", line, event ? rdma_event_str(event->event) : "none",
               event ? event->status : errno);
        exit(1);
    }
    return event;
}

static union { struct sockaddr any; struct sockaddr_in v4; struct sockaddr_in6 v6; } place[2];

/* An address, valid until the next but one. */
static struct sockaddr *at(const char *address, int port) {
    static int turn;
    turn = !turn;
    memset(&place[turn], 0, sizeof place[turn]);
    if (strchr(address, ':')) {
        place[turn].v6.sin6_family = AF_INET6;
        place[turn].v6.sin6_port = htons(port);
        CHECK(inet_pton(AF_INET6, address, &place[turn].v6.sin6_addr) == 1);
    } else {
        place[turn].v4.sin_family = AF_INET;
        place[turn].v4.sin_port = htons(port);
        CHECK(inet_pton(AF_INET, address, &place[turn].v4.sin_addr) == 1);
    }
    return &place[turn].any;
}

static struct rdma_event_channel *new_channel(void) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    CHECK(channel);
    return channel;
}

static struct rdma_cm_id *new_id(struct rdma_event_channel *channel, enum rdma_port_space ps) {
    struct rdma_cm_id *id;
    CHECK(!rdma_create_id(channel, &id, (void *)channel, ps));
    CHECK(id->channel && id->ps == ps && !id->verbs && !id->qp);
    return id;
}

/* A listener at an address, and its port. */
static struct rdma_cm_id *new_listener(struct rdma_event_channel *channel, const char *address,
                                       enum rdma_port_space ps) {
    struct rdma_cm_id *id = new_id(channel, ps);
    CHECK(!rdma_bind_addr(id, at(address, 0)));
    CHECK(!rdma_listen(id, 0));
    CHECK(rdma_get_src_port(id));
    return id;
}

static void route_to(struct rdma_cm_id *id, const char *address, int port) {
    CHECK(!rdma_resolve_addr(id, NULL, at(address, port), 2000));
    PASS(id->channel, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
    CHECK(id->verbs && id->pd && id->port_num == 1);
    CHECK(!rdma_resolve_route(id, 2000));
    PASS(id->channel, RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
    CHECK(id->route.num_paths == 1 && id->route.path_rec->hop_limit == 64);
}

static void new_qp(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr init = { .cap = { 8, 8, 2, 2, 64 }, .qp_type = id->qp_type };
    CHECK(!rdma_create_qp(id, NULL, &init));
    CHECK(id->qp && id->send_cq && id->recv_cq && init.send_cq == id->send_cq);
    enum ibv_qp_state state = id->qp_type == IBV_QPT_UD ? IBV_QPS_RTS : IBV_QPS_INIT;
    CHECK(id->qp->state == state);
}

/* A client with a QP, connected as far as its request goes. */
static struct rdma_cm_id *new_client(struct rdma_event_channel *channel, const char *address,
                                     struct rdma_cm_id *listener) {
    struct rdma_cm_id *id = new_id(channel, listener->ps);
    route_to(id, address, ntohs(rdma_get_src_port(listener)));
    new_qp(id);
    return id;
}

static void destroy(struct rdma_cm_id *id) {
    if (id->qp) rdma_destroy_qp(id);
    CHECK(!rdma_destroy_id(id));
}

/* Both ends of a connection. */
static struct rdma_cm_id *server, *client;

static void connect_pair(struct rdma_event_channel *there, struct rdma_event_channel *here,
                         struct rdma_cm_id *listener, const char *address) {
    struct rdma_conn_param param = { .responder_resources = 1, .initiator_depth = 1,
        .retry_count = 7, .rnr_retry_count = 7 };
    client = new_client(here, address, listener);
    CHECK(!rdma_connect(client, &param));
    struct rdma_cm_event *event = WANT(there, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    server = event->id;
    CHECK(event->listen_id == listener && server->channel == there);
    CHECK(server->context == listener->context && server->verbs);
    CHECK(!rdma_ack_cm_event(event));
    new_qp(server);
    CHECK(!rdma_accept(server, &param));
    PASS(here, RDMA_CM_EVENT_ESTABLISHED, 0);
    PASS(there, RDMA_CM_EVENT_ESTABLISHED, 0);
    CHECK(client->qp->state == IBV_QPS_RTS && server->qp->state == IBV_QPS_RTS);
}

static void disconnect_pair(struct rdma_event_channel *there, struct rdma_event_channel *here) {
    CHECK(!rdma_disconnect(client));
    PASS(there, RDMA_CM_EVENT_DISCONNECTED, 0);
    CHECK(!rdma_disconnect(server));
    PASS(here, RDMA_CM_EVENT_DISCONNECTED, 0);
    CHECK(client->qp->state == IBV_QPS_ERR && server->qp->state == IBV_QPS_ERR);
    destroy(client);
    destroy(server);
}
