/* Connections by rdma_cm: many at once, many one after the other, with private data of every
 * length, refused, and with peers that die.
 *
 *   connections serve PORT                 does what each request asks for, until it is killed
 *   connections watch HOST PORT KIND       connects once and tells every event, to the last
 *   connections half HOST PORT KIND        the same, but never says that it is ready to use
 *   connections lengths HOST PORT          private data of every length
 *   connections cycle HOST PORT COUNT      connects and disconnects; tells what that leaves behind
 *   connections together HOST PORT COUNT   has them all open at the same time, and uses each
 *
 * Each tells events as they come. All but the first two print "ok" last. */
#include <dirent.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PEERS = 1024, REQUEST_MAX = 56, REPLY_MAX = 196, REJECT_MAX = 148 };

/* What a request asks for; nothing said is ACCEPT. */
enum { ACCEPT = 'a', REJECT = 'r', HOLD = 'h' };

/* The first bytes of a request's private data; the rest is a pattern. */
struct wish {
    unsigned char kind, len, reply_len;
};

struct peer {
    struct rdma_cm_id *id;
    unsigned out, in;
};

static struct rdma_event_channel *channel;
static struct ibv_pd *pd;
static struct ibv_comp_channel *completions;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct peer peers[PEERS];
static struct rdma_addrinfo *address;

static void fail(const char *what)
{
    printf("wrong: %s (%s)\n", what, strerror(errno));
    exit(1);
}

#define CHECK(that) do { if (!(that)) fail(#that); } while (0)

/* All that connections share is made for the first of them. */
static void open_device(struct ibv_context *verbs)
{
    if (pd)
        return;
    CHECK(pd = ibv_alloc_pd(verbs));
    CHECK(completions = ibv_create_comp_channel(verbs));
    CHECK(cq = ibv_create_cq(verbs, 4 * PEERS, NULL, completions, 0));
    CHECK(!ibv_req_notify_cq(cq, 0));
    CHECK(mr = ibv_reg_mr(pd, peers, sizeof peers, IBV_ACCESS_LOCAL_WRITE));
}

static struct peer *free_peer(void)
{
    for (int i = 0; i < PEERS; i++) {
        if (!peers[i].id)
            return &peers[i];
    }
    fail("a free peer");
    return NULL;
}

static void post_recv(struct peer *peer)
{
    struct ibv_sge sge = { (uintptr_t)&peer->in, sizeof peer->in, mr->lkey };
    struct ibv_recv_wr wr = { (uintptr_t)peer, NULL, &sge, 1 }, *bad;
    CHECK(!ibv_post_recv(peer->id->qp, &wr, &bad));
}

static void post_send(struct peer *peer, unsigned value)
{
    peer->out = value;
    struct ibv_sge sge = { (uintptr_t)&peer->out, sizeof peer->out, mr->lkey };
    struct ibv_send_wr wr = { .wr_id = (uintptr_t)peer, .sg_list = &sge, .num_sge = 1,
                              .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
    CHECK(!ibv_post_send(peer->id->qp, &wr, &bad));
}

static void make_qp(struct peer *peer)
{
    struct ibv_qp_init_attr attr = { .send_cq = cq, .recv_cq = cq, .cap = { 1, 1, 1, 1 },
                                     .qp_type = IBV_QPT_RC };
    CHECK(!rdma_create_qp(peer->id, pd, &attr));
    post_recv(peer);
}

static void drop(struct peer *peer)
{
    if (peer->id->qp)
        rdma_destroy_qp(peer->id);
    CHECK(!rdma_destroy_id(peer->id));
    memset(peer, 0, sizeof *peer);
}

/* The byte at `index` of private data of `len` bytes. */
static unsigned char pattern(int index, int len)
{
    return index < len ? (unsigned char)(index * 7 + len) : 0;
}

/* Whether `data` is the pattern from `from` on and zeros behind it, to its end. */
static int is_pattern(const struct rdma_conn_param *conn, int from, int len, int end)
{
    const unsigned char *data = conn->private_data;
    if (conn->private_data_len < len || conn->private_data_len > end)
        return 0;
    for (int i = from; i < conn->private_data_len; i++) {
        if (data[i] != pattern(i, len))
            return 0;
    }
    return 1;
}

static struct rdma_cm_event *next_event(void)
{
    struct rdma_cm_event *event;
    CHECK(!rdma_get_cm_event(channel, &event));
    return event;
}

static void tell(const struct rdma_cm_event *event)
{
    printf("%s %d\n", rdma_event_str(event->event), event->status);
}

/* The next event must be this one of this id. */
static struct rdma_cm_event *expect(struct rdma_cm_id *id, enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event = next_event();
    while (event->event == RDMA_CM_EVENT_TIMEWAIT_EXIT) {
        rdma_ack_cm_event(event);
        event = next_event();
    }
    if (event->event != type || event->id != id) {
        tell(event);
        fail(rdma_event_str(type));
    }
    return event;
}

/* ---- the server ---- */

static void answer(struct rdma_cm_event *event)
{
    struct wish wish = { 0 };
    memcpy(&wish, event->param.conn.private_data, sizeof wish);
    if (!is_pattern(&event->param.conn, sizeof wish, wish.len, REQUEST_MAX)) {
        CHECK(!rdma_reject(event->id, "request", 8));
        CHECK(!rdma_destroy_id(event->id));
        return;
    }
    unsigned char reply[REPLY_MAX];
    for (int i = 0; i < REPLY_MAX; i++)
        reply[i] = pattern(i, wish.reply_len);
    struct peer *peer;
    struct rdma_conn_param param = { reply, wish.reply_len, 1, 1, 0, 0, 7 };
    switch (wish.kind) {
    case REJECT:
        CHECK(!rdma_reject(event->id, reply, wish.reply_len));
        CHECK(!rdma_destroy_id(event->id));
        break;
    case HOLD:
        peer = free_peer();
        peer->id = event->id;
        peer->id->context = peer;
        break;
    default:
        open_device(event->id->verbs);
        peer = free_peer();
        peer->id = event->id;
        peer->id->context = peer;
        make_qp(peer);
        CHECK(!rdma_accept(peer->id, &param));
    }
}

static void serve_event(void)
{
    struct rdma_cm_event *event = next_event();
    struct peer *peer = event->id->context;
    tell(event);
    switch (event->event) {
    case RDMA_CM_EVENT_CONNECT_REQUEST:
        answer(event);
        break;
    case RDMA_CM_EVENT_ESTABLISHED:
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        break;
    default:
        /* Disconnected, or it never came that far. An id is not destroyed before its event is
         * acknowledged. */
        rdma_disconnect(peer->id);
        rdma_ack_cm_event(event);
        drop(peer);
        return;
    }
    rdma_ack_cm_event(event);
}

static void echo(void)
{
    struct ibv_cq *found;
    void *context;
    struct ibv_wc wc;
    CHECK(!ibv_get_cq_event(completions, &found, &context));
    ibv_ack_cq_events(found, 1);
    CHECK(!ibv_req_notify_cq(cq, 0));
    while (ibv_poll_cq(cq, 1, &wc) > 0) {
        struct peer *peer = (struct peer *)(uintptr_t)wc.wr_id;
        /* Of one that has gone meanwhile, or that goes. */
        if (wc.status != IBV_WC_SUCCESS || !peer->id)
            continue;
        if (wc.opcode == IBV_WC_RECV)
            post_send(peer, peer->in);
    }
}

static void serve(void)
{
    struct rdma_cm_id *listener;
    CHECK(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
    CHECK(!rdma_bind_addr(listener, address->ai_src_addr));
    CHECK(!rdma_listen(listener, 0));
    printf("listening\n");
    for (;;) {
        struct pollfd fds[] = { { channel->fd, POLLIN }, { -1, POLLIN } };
        if (completions)
            fds[1].fd = completions->fd;
        CHECK(poll(fds, 2, -1) > 0);
        if (fds[0].revents)
            serve_event();
        else
            echo();
    }
}

/* ---- the client ---- */

static struct peer *resolved(void)
{
    struct peer *peer = free_peer();
    CHECK(!rdma_create_id(channel, &peer->id, peer, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addr(peer->id, NULL, address->ai_dst_addr, 2000));
    rdma_ack_cm_event(expect(peer->id, RDMA_CM_EVENT_ADDR_RESOLVED));
    CHECK(!rdma_resolve_route(peer->id, 2000));
    rdma_ack_cm_event(expect(peer->id, RDMA_CM_EVENT_ROUTE_RESOLVED));
    open_device(peer->id->verbs);
    return peer;
}

static void request(struct peer *peer, int kind, int len, int reply_len)
{
    unsigned char data[REQUEST_MAX] = { 0 };
    struct wish wish = { kind, len, reply_len };
    for (int i = 0; i < len; i++)
        data[i] = pattern(i, len);
    memcpy(data, &wish, len < (int)sizeof wish ? len : (int)sizeof wish);
    struct rdma_conn_param param = { data, len, 1, 1, 0, 7, 7 };
    CHECK(!rdma_connect(peer->id, &param));
}

static void disconnect(struct peer *peer)
{
    CHECK(!rdma_disconnect(peer->id));
    rdma_ack_cm_event(expect(peer->id, RDMA_CM_EVENT_DISCONNECTED));
    drop(peer);
}

static void watch(int kind, int is_half)
{
    struct peer *peer = free_peer();
    CHECK(!rdma_create_id(channel, &peer->id, peer, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addr(peer->id, NULL, address->ai_dst_addr, 2000));
    for (;;) {
        struct rdma_cm_event *event = next_event();
        enum rdma_cm_event_type type = event->event;
        tell(event);
        rdma_ack_cm_event(event);
        switch (type) {
        case RDMA_CM_EVENT_ADDR_RESOLVED:
            CHECK(!rdma_resolve_route(peer->id, 2000));
            break;
        case RDMA_CM_EVENT_ROUTE_RESOLVED:
            open_device(peer->id->verbs);
            if (!is_half)
                make_qp(peer);
            request(peer, kind, sizeof(struct wish), 0);
            break;
        case RDMA_CM_EVENT_CONNECT_RESPONSE:
        case RDMA_CM_EVENT_ESTABLISHED:
            break;
        default:
            rdma_disconnect(peer->id);
            drop(peer);
            return;
        }
    }
}

static void lengths(void)
{
    for (int len = 0; len <= REQUEST_MAX; len++) {
        struct peer *peer = resolved();
        make_qp(peer);
        request(peer, ACCEPT, len, 0);
        rdma_ack_cm_event(expect(peer->id, RDMA_CM_EVENT_ESTABLISHED));
        disconnect(peer);
    }
    for (int len = 0; len <= REPLY_MAX; len++) {
        struct peer *peer = resolved();
        make_qp(peer);
        request(peer, ACCEPT, sizeof(struct wish), len);
        struct rdma_cm_event *event = expect(peer->id, RDMA_CM_EVENT_ESTABLISHED);
        CHECK(is_pattern(&event->param.conn, 0, len, REPLY_MAX));
        rdma_ack_cm_event(event);
        disconnect(peer);
    }
    for (int len = 0; len <= REJECT_MAX; len++) {
        struct peer *peer = resolved();
        make_qp(peer);
        request(peer, REJECT, sizeof(struct wish), len);
        struct rdma_cm_event *event = expect(peer->id, RDMA_CM_EVENT_REJECTED);
        /* 28: the consumer does not want it. */
        CHECK(event->status == 28);
        CHECK(is_pattern(&event->param.conn, 0, len, REJECT_MAX));
        rdma_ack_cm_event(event);
        drop(peer);
    }
    unsigned char data[REQUEST_MAX + 1] = { 0 };
    struct peer *peer = resolved();
    make_qp(peer);
    struct rdma_conn_param param = { data, sizeof data, 1, 1, 0, 7, 7 };
    CHECK(rdma_connect(peer->id, &param) == -1 && errno == EINVAL);
    drop(peer);
}

static int open_files(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static long resident_kib(void)
{
    char line[128];
    long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file);
    while (fgets(line, sizeof line, file))
        sscanf(line, "VmRSS: %ld", &kib);
    fclose(file);
    return kib;
}

/* The first one makes what is kept, and the first tenth may still make that grow; after it nothing
 * must grow. */
static void cycle(int count)
{
    int files = 0, first = 1 + count / 10;
    long kib = 0;
    for (int i = 0; i < count; i++) {
        if (i == first) {
            files = open_files();
            kib = resident_kib();
        }
        struct peer *peer = resolved();
        make_qp(peer);
        request(peer, ACCEPT, sizeof(struct wish), 0);
        rdma_ack_cm_event(expect(peer->id, RDMA_CM_EVENT_ESTABLISHED));
        disconnect(peer);
    }
    if (count > first) {
        CHECK(open_files() == files);
        printf("grown by %ld KiB\n", resident_kib() - kib);
    }
}

static void together(int count)
{
    CHECK(count <= PEERS);
    for (int i = 0; i < count; i++)
        make_qp(resolved());
    for (int i = 0; i < count; i++)
        request(&peers[i], ACCEPT, sizeof(struct wish), 0);
    for (int i = 0; i < count; i++) {
        struct rdma_cm_event *event = next_event();
        if (event->event != RDMA_CM_EVENT_ESTABLISHED) {
            tell(event);
            fail("established");
        }
        rdma_ack_cm_event(event);
    }
    for (int i = 0; i < count; i++)
        post_send(&peers[i], 1 + i);
    for (int left = 2 * count; left > 0;) {
        struct ibv_wc wc;
        int polled = ibv_poll_cq(cq, 1, &wc);
        CHECK(polled >= 0);
        CHECK(!polled || wc.status == IBV_WC_SUCCESS);
        left -= polled;
    }
    for (int i = 0; i < count; i++)
        CHECK(peers[i].in == 1u + i);
    for (int i = 0; i < count; i++)
        CHECK(!rdma_disconnect(peers[i].id));
    for (int i = 0; i < count;) {
        struct rdma_cm_event *event = next_event();
        i += event->event == RDMA_CM_EVENT_DISCONNECTED;
        rdma_ack_cm_event(event);
    }
    for (int i = 0; i < count; i++)
        drop(&peers[i]);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(argc >= 3);
    const char *mode = argv[1];
    int serves = !strcmp(mode, "serve");
    CHECK(serves || argc >= 4);
    struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP };
    hints.ai_flags = serves ? RAI_PASSIVE : RAI_NUMERICHOST;
    const char *host = serves ? NULL : argv[2], *port = argv[serves ? 2 : 3];
    CHECK(!rdma_getaddrinfo(host, port, &hints, &address));
    CHECK(channel = rdma_create_event_channel());
    const char *last = argc > 4 ? argv[4] : "";
    if (serves)
        serve();
    else if (!strcmp(mode, "watch") || !strcmp(mode, "half"))
        watch(last[0], !strcmp(mode, "half"));
    else if (!strcmp(mode, "lengths"))
        lengths();
    else if (!strcmp(mode, "cycle"))
        cycle(atoi(last));
    else if (!strcmp(mode, "together"))
        together(atoi(last));
    else
        fail("the mode");
    rdma_destroy_event_channel(channel);
    printf("ok\n");
    return 0;
}
