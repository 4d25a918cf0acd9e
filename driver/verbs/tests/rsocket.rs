//! rsockets: programs in C that are both ends, and peers that do not keep to the rules.

mod common;

/// Compiles and runs a program that begins with `sockets.h` and prints only what is wrong.
fn run(name: &str, body: &str) {
    const PRELUDE: &str = include_str!("common/sockets.h");
    let folder = common::library_folder(&format!("rsocket-{name}"));
    let source = format!("{PRELUDE}\n#line 1\n{body}");
    let libraries = ["-lrdmacm", "-libverbs", "-lpthread"];
    let Some(program) = common::compile(&folder, &source, &libraries) else { return };
    assert_eq!(common::run_with(&folder, &program, &[]), "");
}

#[test]
fn a_stream_carries_bytes_both_ways_at_once() {
    run(
        "both_ways",
        r#"
enum { BYTES = 3000000 };
static void *send_there(void *n) { send_pattern(client, 0, BYTES, 100003); return n; }
static void *recv_here(void *n) { recv_pattern(client, 0, BYTES, 70001); return n; }
static void *send_here(void *n) { send_pattern(server, 0, BYTES, 777); return n; }
static void *recv_there(void *n) { recv_pattern(server, 0, BYTES, 4099); return n; }
int main(void) {
    open_pair();
    void *threads[] = {
        in_thread(send_there, NULL), in_thread(recv_here, NULL),
        in_thread(send_here, NULL), in_thread(recv_there, NULL) };
    for (int i = 0; i < 4; i++)
        join(threads[i]);
    close_pair();
    CHECK(!rclose(listener));
    FAILS(rclose(listener), EBADF);
    FAILS(rsend(client, "", 1, 0), EBADF);
}
"#,
    );
}

#[test]
fn two_processes_talk() {
    run(
        "processes",
        r#"
int main(void) {
    int ports[2], port, status;
    CHECK(!pipe(ports));
    pid_t child = fork();
    if (!child) {
        open_listener();
        port = ntohs(address.sin_port);
        CHECK(write(ports[1], &port, sizeof port) == sizeof port);
        struct sockaddr_in from;
        socklen_t len = sizeof from;
        CHECK((server = raccept(listener, (struct sockaddr *)&from, &len)) >= 0);
        CHECK(len == sizeof from && from.sin_family == AF_INET && from.sin_port);
        recv_pattern(server, 0, 1000000, 65536);
        send_pattern(server, 0, 1000000, 65536);
        CHECK(rread(server, &port, sizeof port) == 0);
        CHECK(!rclose(server) && !rclose(listener));
        exit(0);
    }
    CHECK(read(ports[0], &port, sizeof port) == sizeof port);
    address = loopback(port);
    client = connect_to_listener();
    struct sockaddr_in peer;
    socklen_t len = sizeof peer;
    CHECK(!rgetpeername(client, (struct sockaddr *)&peer, &len) && peer.sin_port == htons(port));
    send_pattern(client, 0, 1000000, 50000);
    recv_pattern(client, 0, 1000000, 50000);
    CHECK(!rclose(client));
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}
"#,
    );
}

#[test]
fn vectors_peeks_and_whole_reads() {
    run(
        "vectors",
        r#"
static void *later(void *n) { CHECK(rwrite(client, "0123456789", 10) == 10); return n; }
int main(void) {
    open_pair();
    struct iovec out[3] = { { "abc", 3 }, { "", 0 }, { "defgh", 5 } };
    CHECK(rwritev(client, out, 3) == 8);
    CHECK(revents(server, POLLIN) == POLLIN);
    char a[2], b[8] = "", c[20];
    CHECK(rrecv(server, b, 8, MSG_PEEK) == 8 && !memcmp(b, "abcdefgh", 8));
    struct iovec in[2] = { { a, 2 }, { b, 8 } };
    CHECK(rreadv(server, in, 2) == 8 && !memcmp(a, "ab", 2) && !memcmp(b, "cdefgh", 6));
    struct msghdr message = { .msg_iov = out, .msg_iovlen = 3 };
    CHECK(rsendmsg(client, &message, 0) == 8);
    void *thread = in_thread(later, NULL);
    CHECK(rrecv(server, c, 18, MSG_WAITALL) == 18 && !memcmp(c, "abcdefgh0123456789", 18));
    join(thread);
    FAILS(rrecv(server, c, 1, MSG_DONTWAIT), EAGAIN);
    CHECK(rrecv(server, c, 0, 0) == 0 && rsend(client, c, 0, 0) == 0);
    FAILS(rsendto(client, c, 1, 0, (struct sockaddr *)&address, sizeof address), EISCONN);
    CHECK(rsend(client, "x", 1, 0) == 1 && revents(server, POLLIN) == POLLIN);
    FAILS(rrecv(server, (void *)8, 1, 0), EFAULT);
    CHECK(rrecv(server, c, 20, 0) == 1 && c[0] == 'x');
    static char many[5000];
    FAILS(rsend(client, (void *)8, 5000, 0), EFAULT);
    CHECK(rsend(client, many, 5000, 0) == 5000);
    char room[5000];
    CHECK(rrecv(server, room, 5000, MSG_WAITALL) == 5000 && !memcmp(room, many, 5000));
    close_pair();
}
"#,
    );
}

#[test]
fn calls_that_may_not_wait_do_not() {
    run(
        "nonblocking",
        r#"
int main(void) {
    open_listener();
    CHECK(!rfcntl(listener, F_SETFL, O_NONBLOCK));
    FAILS(raccept(listener, NULL, NULL), EAGAIN);
    CHECK((client = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)) >= 0);
    CHECK(rfcntl(client, F_GETFL) == (O_RDWR | O_NONBLOCK));
    FAILS(rsend(client, "x", 1, 0), ENOTCONN);
    FAILS(rrecv(client, &client, 1, 0), ENOTCONN);
    FAILS(rconnect(client, (struct sockaddr *)&address, sizeof address), EINPROGRESS);
    CHECK(revents(client, POLLOUT) == POLLOUT);
    int error = -1;
    socklen_t len = sizeof error;
    CHECK(!rgetsockopt(client, SOL_SOCKET, SO_ERROR, &error, &len) && error == 0);
    FAILS(rconnect(client, (struct sockaddr *)&address, sizeof address), EISCONN);
    CHECK(revents(listener, POLLIN) == POLLIN);
    CHECK((server = raccept(listener, NULL, NULL)) >= 0);
    static char bytes[1 << 20];
    FAILS(rrecv(server, bytes, 1, 0), EAGAIN);
    /* As much as fits, and not a byte is lost or told twice. */
    size_t sent = 0, got = 0;
    ssize_t n;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = pattern(i);
    while ((n = rsend(client, bytes + sent, sizeof bytes - sent, 0)) > 0)
        sent += n;
    CHECK(n == -1 && errno == EAGAIN && sent > 0 && sent < sizeof bytes);
    CHECK(revents_now(client, POLLOUT) == 0);
    static char room[1 << 20];
    while (got < sent) {
        CHECK(revents(server, POLLIN) == POLLIN);
        CHECK((n = rrecv(server, room + got, sizeof room - got, 0)) > 0);
        got += n;
    }
    CHECK(got == sent && !memcmp(bytes, room, sent));
    CHECK(revents(client, POLLOUT) == POLLOUT);
    CHECK(revents_now(client, POLLIN) == 0);
    close_pair();
}
"#,
    );
}

#[test]
fn a_side_that_has_said_its_last_still_listens() {
    run(
        "shutdown",
        r#"
int main(void) {
    char c[8];
    open_pair();
    CHECK(rsend(client, "last", 4, 0) == 4);
    CHECK(!rshutdown(client, SHUT_WR));
    FAILS(rsend(client, "x", 1, MSG_NOSIGNAL), EPIPE);
    CHECK(rrecv(server, c, 8, MSG_WAITALL) == 4 && !memcmp(c, "last", 4));
    CHECK(rrecv(server, c, 8, 0) == 0 && rrecv(server, c, 8, MSG_DONTWAIT) == 0);
    CHECK(revents_now(server, POLLIN | POLLOUT) == (POLLIN | POLLOUT));
    CHECK(rsend(server, "answer", 6, 0) == 6);
    CHECK(rrecv(client, c, 6, MSG_WAITALL) == 6 && !memcmp(c, "answer", 6));
    CHECK(!rshutdown(server, SHUT_WR));
    CHECK(rrecv(client, c, 8, 0) == 0);
    CHECK(revents(client, POLLIN) == (POLLIN | POLLHUP));
    close_pair();

    /* What was sent before the end arrives, also if nobody has read it when it ends. */
    open_pair();
    static char bytes[100000], room[100000];
    memset(bytes, 7, sizeof bytes);
    CHECK(rsend(client, bytes, sizeof bytes, 0) == sizeof bytes);
    CHECK(!rclose(client));
    CHECK(rrecv(server, room, sizeof room, MSG_WAITALL) == sizeof room);
    CHECK(!memcmp(bytes, room, sizeof room) && rrecv(server, room, 1, 0) == 0);
    FAILS(rsend(server, "x", 1, 0), ECONNRESET);
    CHECK(!rclose(server));
    FAILS(rshutdown(listener, SHUT_RDWR), ENOTCONN);
}
"#,
    );
}

#[test]
fn who_waits_is_woken_by_what_other_threads_do() {
    run(
        "woken",
        r#"
static void *reads(void *socket) {
    char c;
    CHECK(rrecv(*(int *)socket, &c, 1, 0) == 0);
    return NULL;
}
static void *polls(void *socket) {
    CHECK(revents(*(int *)socket, POLLIN) & POLLIN);
    return NULL;
}
static void *echoes(void *socket) {
    char c;
    while (rrecv(*(int *)socket, &c, 1, 0) == 1)
        CHECK(rsend(*(int *)socket, &c, 1, 0) == 1);
    return NULL;
}
static void *sends(void *n) {
    static char bytes[1 << 20];
    CHECK(rsend(client, bytes, sizeof bytes, 0) == sizeof bytes);
    return n;
}
int main(void) {
    /* One thread polls, one reads: one event, two that must hear of it. */
    open_pair();
    void *one = in_thread(polls, &server), *two = in_thread(reads, &server);
    CHECK(!rshutdown(client, SHUT_WR));
    join(one);
    join(two);
    close_pair();
    /* The socket is shut down under a reader. */
    open_pair();
    one = in_thread(reads, &server);
    CHECK(!rshutdown(server, SHUT_RD));
    join(one);
    close_pair();
    /* A reader takes the completions that a sender waits for. */
    open_pair();
    one = in_thread(sends, NULL);
    two = in_thread(reads, &client);
    static char room[1 << 20];
    CHECK(rrecv(server, room, sizeof room, MSG_WAITALL) == sizeof room);
    join(one);
    CHECK(!rshutdown(server, SHUT_WR));
    join(two);
    close_pair();
    /* Ping-pong of two threads that both sleep. */
    open_pair();
    one = in_thread(echoes, &server);
    for (int i = 0; i < 300; i++) {
        char c = i;
        CHECK(rsend(client, &c, 1, 0) == 1);
        c = ~c;
        CHECK(rrecv(client, &c, 1, 0) == 1 && c == (char)i);
    }
    CHECK(!rclose(client));
    join(one);
    CHECK(!rclose(server));
}
"#,
    );
}

#[test]
fn sockets_are_polled_together_with_files() {
    run(
        "polled",
        r#"
int main(void) {
    open_pair();
    int ends[2];
    CHECK(!pipe(ends));
    struct pollfd fds[4] = {
        { .fd = server, .events = POLLIN }, { .fd = ends[0], .events = POLLIN },
        { .fd = -1, .events = POLLIN }, { .fd = listener, .events = POLLIN } };
    CHECK(rpoll(fds, 4, 0) == 0);
    CHECK(rpoll(fds, 4, 20) == 0);
    CHECK(write(ends[1], "x", 1) == 1);
    CHECK(rpoll(fds, 4, -1) == 1 && fds[1].revents == POLLIN && !fds[0].revents);
    CHECK(rsend(client, "x", 1, 0) == 1);
    CHECK(revents(server, POLLIN) == POLLIN);
    CHECK(rpoll(fds, 4, -1) == 2 && fds[0].revents == POLLIN && !fds[3].revents);

    fd_set in, out, except;
    FD_ZERO(&in); FD_ZERO(&out); FD_ZERO(&except);
    FD_SET(server, &in); FD_SET(client, &in); FD_SET(ends[0], &in);
    FD_SET(client, &out); FD_SET(server, &except);
    int most = server > client ? server : client;
    most = most > ends[0] ? most : ends[0];
    CHECK(rselect(most + 1, &in, &out, &except, NULL) == 3);
    CHECK(FD_ISSET(server, &in) && FD_ISSET(ends[0], &in) && FD_ISSET(client, &out));
    CHECK(!FD_ISSET(client, &in) && !FD_ISSET(server, &except));
    struct timeval none = { 0, 0 };
    FD_ZERO(&in); FD_SET(client, &in);
    CHECK(rselect(client + 1, &in, NULL, NULL, &none) == 0 && !FD_ISSET(client, &in));
    CHECK(rpoll(NULL, 0, 0) == 0);
    close_pair();
    CHECK(revents_now(server, POLLIN) == POLLNVAL);
}
"#,
    );
}

#[test]
fn members_of_a_set_are_told_with_their_data() {
    run(
        "set",
        r#"
/* Newer than the header. */
int repoll_create(int), repoll_ctl(int, int, int, struct epoll_event *);
int repoll_wait(int, struct epoll_event *, int, int);
static int set;
static void *adds(void *n) {
    struct epoll_event event = { EPOLLOUT, { .u64 = 5 } };
    CHECK(!repoll_ctl(set, EPOLL_CTL_ADD, client, &event));
    return n;
}
int main(void) {
    open_pair();
    CHECK((set = repoll_create(0)) >= 0);
    struct epoll_event event = { EPOLLIN, { .u64 = 77 } }, events[4];
    CHECK(!repoll_ctl(set, EPOLL_CTL_ADD, server, &event));
    FAILS(repoll_ctl(set, EPOLL_CTL_ADD, server, &event), EEXIST);
    FAILS(repoll_ctl(set, EPOLL_CTL_MOD, client, &event), ENOENT);
    FAILS(repoll_ctl(set, EPOLL_CTL_ADD, set, &event), EINVAL);
    FAILS(repoll_wait(client, events, 4, 0), EINVAL);
    FAILS(repoll_wait(set, events, 0, 0), EINVAL);
    CHECK(repoll_wait(set, events, 4, 0) == 0);
    CHECK(rsend(client, "x", 1, 0) == 1);
    CHECK(repoll_wait(set, events, 4, -1) == 1);
    CHECK(events[0].events == EPOLLIN && events[0].data.u64 == 77);
    char c;
    CHECK(rrecv(server, &c, 1, 0) == 1 && repoll_wait(set, events, 4, 0) == 0);
    void *thread = in_thread(adds, NULL);
    CHECK(repoll_wait(set, events, 4, -1) == 1 && events[0].data.u64 == 5);
    join(thread);
    event.events = EPOLLOUT | EPOLLONESHOT;
    CHECK(!repoll_ctl(set, EPOLL_CTL_MOD, client, &event));
    CHECK(repoll_wait(set, events, 4, -1) == 1 && repoll_wait(set, events, 4, 0) == 0);
    CHECK(!repoll_ctl(set, EPOLL_CTL_MOD, client, &event));
    CHECK(repoll_wait(set, events, 4, -1) == 1);
    /* An edge is told once, until there is another. */
    event.events = EPOLLIN | EPOLLOUT | EPOLLET;
    CHECK(!repoll_ctl(set, EPOLL_CTL_MOD, server, &event));
    CHECK(repoll_wait(set, events, 4, -1) == 1 && events[0].events == EPOLLOUT);
    CHECK(repoll_wait(set, events, 4, 0) == 0);
    CHECK(rsend(client, "xy", 2, 0) == 2);
    CHECK(repoll_wait(set, events, 4, -1) == 1 && events[0].events & EPOLLIN);
    while (repoll_wait(set, events, 4, 0) == 1)
        ;
    CHECK(rrecv(server, &c, 1, 0) == 1 && repoll_wait(set, events, 4, 0) == 0);
    CHECK(!repoll_ctl(set, EPOLL_CTL_DEL, client, NULL));
    CHECK(!rclose(set));
    FAILS(repoll_wait(set, events, 4, 0), EINVAL);
    close_pair();
}
"#,
    );
}

#[test]
fn there_is_no_connection_where_nobody_listens() {
    run(
        "refused",
        r#"
int main(void) {
    open_listener();
    int other = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(!rbind(other, (struct sockaddr *)&address, 0) || errno == EINVAL);
    int outcome = rbind(other, (struct sockaddr *)&address, sizeof address);
    CHECK(outcome == -1 && errno == EADDRINUSE);
    CHECK(!rclose(other) && !rclose(listener));
    CHECK((client = rsocket(AF_INET, SOCK_STREAM, 0)) >= 0);
    FAILS(rconnect(client, (struct sockaddr *)&address, sizeof address), ECONNREFUSED);
    FAILS(rsend(client, "x", 1, 0), ECONNREFUSED);
    CHECK(!rclose(client));
    CHECK((client = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)) >= 0);
    FAILS(rconnect(client, (struct sockaddr *)&address, sizeof address), EINPROGRESS);
    CHECK(revents(client, POLLOUT) == (POLLOUT | POLLERR));
    int error = 0;
    socklen_t len = sizeof error;
    CHECK(!rgetsockopt(client, SOL_SOCKET, SO_ERROR, &error, &len) && error == ECONNREFUSED);
    CHECK(!rgetsockopt(client, SOL_SOCKET, SO_ERROR, &error, &len) && error == 0);
    CHECK(!rclose(client));
    FAILS(rsocket(AF_UNIX, SOCK_STREAM, 0), ENOTSUP);
    FAILS(rsocket(AF_INET, SOCK_RAW, 0), ENOTSUP);
    FAILS(rsocket(AF_INET, SOCK_STREAM, IPPROTO_UDP), ENOTSUP);
}
"#,
    );
}

#[test]
fn a_full_queue_lets_others_wait_and_then_in() {
    run(
        "backlog",
        r#"
enum { CLIENTS = 6 };
static void *connects(void *socket) {
    *(int *)socket = connect_to_listener();
    return NULL;
}
int main(void) {
    int sockets[CLIENTS];
    void *threads[CLIENTS];
    open_listener();
    CHECK(!rlisten(listener, 2));
    for (int i = 0; i < CLIENTS; i++)
        threads[i] = in_thread(connects, &sockets[i]);
    int accepted[CLIENTS];
    for (int i = 0; i < CLIENTS; i++)
        CHECK((accepted[i] = raccept(listener, NULL, NULL)) >= 0);
    for (int i = 0; i < CLIENTS; i++) {
        join(threads[i]);
        CHECK(!rclose(sockets[i]) && !rclose(accepted[i]));
    }
    /* With a listener go the connections that nobody has accepted. */
    client = connect_to_listener();
    CHECK(!rclose(listener));
    char c;
    CHECK(rrecv(client, &c, 1, 0) == 0);
    CHECK(!rclose(client));
}
"#,
    );
}

#[test]
fn a_killed_peer_is_the_end_of_the_stream() {
    run(
        "killed",
        r#"
int main(void) {
    int ports[2], port;
    char c, room[6];
    CHECK(!pipe(ports));
    pid_t child = fork();
    if (!child) {
        open_listener();
        port = ntohs(address.sin_port);
        CHECK(write(ports[1], &port, sizeof port) == sizeof port);
        CHECK((server = raccept(listener, NULL, NULL)) >= 0);
        CHECK(rrecv(server, &c, 1, 0) == 1);
        CHECK(rsend(server, "before", 6, 0) == 6);
        pause();
    }
    CHECK(read(ports[0], &port, sizeof port) == sizeof port);
    address = loopback(port);
    client = connect_to_listener();
    CHECK(rsend(client, "x", 1, 0) == 1);
    CHECK(rrecv(client, room, 6, MSG_PEEK | MSG_WAITALL) > 0);
    CHECK(!kill(child, SIGKILL) && waitpid(child, NULL, 0) == child);
    CHECK(rrecv(client, room, 6, MSG_WAITALL) == 6 && !memcmp(room, "before", 6));
    CHECK(rrecv(client, room, 6, 0) == 0);
    CHECK(revents(client, POLLIN) & POLLHUP);
    FAILS(rsend(client, "x", 1, 0), ECONNRESET);
    CHECK(!rclose(client));
}
"#,
    );
}

#[test]
fn options_are_kept_and_sizes_are_bounded() {
    run(
        "options",
        r#"
static int get(int socket, int level, int name) {
    int value = -1;
    socklen_t len = sizeof value;
    CHECK(!rgetsockopt(socket, level, name, &value, &len) && len == sizeof value);
    return value;
}
static void set(int socket, int level, int name, int value) {
    CHECK(!rsetsockopt(socket, level, name, &value, sizeof value));
}
int main(void) {
    int s = rsocket(AF_INET, SOCK_STREAM, 0), value = 3;
    CHECK(s >= 0);
    CHECK(get(s, SOL_RDMA, RDMA_SQSIZE) == 384 && get(s, SOL_RDMA, RDMA_RQSIZE) == 384);
    CHECK(get(s, SOL_SOCKET, SO_RCVBUF) == 1 << 17 && get(s, SOL_RDMA, RDMA_INLINE) == 64);
    set(s, SOL_RDMA, RDMA_SQSIZE, 20);
    set(s, SOL_RDMA, RDMA_RQSIZE, 1);
    set(s, SOL_RDMA, RDMA_IOMAPSIZE, 3);
    set(s, SOL_SOCKET, SO_SNDBUF, 0);
    set(s, SOL_SOCKET, SO_RCVBUF, 0x7fffffff);
    CHECK(get(s, SOL_RDMA, RDMA_SQSIZE) == 20 && get(s, SOL_RDMA, RDMA_RQSIZE) == 16);
    CHECK(get(s, SOL_SOCKET, SO_SNDBUF) == 4096 && get(s, SOL_SOCKET, SO_RCVBUF) == 1 << 30);
    set(s, SOL_SOCKET, SO_RCVBUF, 4000);
    CHECK(get(s, SOL_RDMA, RDMA_IOMAPSIZE) == 3);
    CHECK(get(s, SOL_SOCKET, SO_TYPE) == SOCK_STREAM && !get(s, SOL_SOCKET, SO_ACCEPTCONN));
    CHECK(!get(s, IPPROTO_TCP, TCP_NODELAY));
    set(s, IPPROTO_TCP, TCP_NODELAY, 1);
    set(s, SOL_SOCKET, SO_REUSEADDR, 1);
    set(s, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(s, IPPROTO_TCP, TCP_KEEPIDLE, 1);
    CHECK(get(s, IPPROTO_TCP, TCP_NODELAY) == 1 && get(s, SOL_SOCKET, SO_REUSEADDR) == 1);
    CHECK(get(s, IPPROTO_TCP, TCP_KEEPIDLE) == 1 && get(s, SOL_SOCKET, SO_KEEPALIVE) == 1);
    value = 0;
    FAILS(rsetsockopt(s, IPPROTO_TCP, TCP_KEEPIDLE, &value, sizeof value), EINVAL);
    FAILS(rsetsockopt(s, SOL_SOCKET, SO_PASSCRED, &value, sizeof value), ENOTSUP);
    FAILS(rsetsockopt(s, IPPROTO_TCP, TCP_NODELAY, &value, 2), EINVAL);
    FAILS(rsetsockopt(s, IPPROTO_TCP, TCP_NODELAY, NULL, 4), EFAULT);
    struct timeval soon = { 0, 1000 };
    CHECK(!rsetsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));

    /* A socket with the smallest of everything still works. */
    open_listener();
    CHECK(get(listener, SOL_SOCKET, SO_ACCEPTCONN) == 1);
    CHECK(!rconnect(s, (struct sockaddr *)&address, sizeof address));
    CHECK((server = raccept(listener, NULL, NULL)) >= 0);
    value = 20;
    FAILS(rsetsockopt(s, SOL_RDMA, RDMA_SQSIZE, &value, sizeof value), EINVAL);
    char c;
    FAILS(rrecv(s, &c, 1, 0), EAGAIN);
    struct tcp_info info;
    socklen_t len = sizeof info;
    CHECK(!rgetsockopt(s, IPPROTO_TCP, TCP_INFO, &info, &len));
    CHECK(info.tcpi_state == TCP_ESTABLISHED);
    client = s;
    for (int i = 0; i < 100; i++) {
        send_pattern(client, i * 3000, (i + 1) * 3000, 500);
        recv_pattern(server, i * 3000, (i + 1) * 3000, 400);
        send_pattern(server, i * 3000, (i + 1) * 3000, 500);
        recv_pattern(client, i * 3000, (i + 1) * 3000, 400);
    }
    close_pair();
}
"#,
    );
}

#[test]
fn mapped_buffers_are_written_to_directly() {
    run(
        "mapped",
        r#"
int main(void) {
    static char room[3][70000], bytes[70000];
    int count = 2;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = pattern(i);
    open_listener();
    CHECK(!rsetsockopt(listener, SOL_RDMA, RDMA_IOMAPSIZE, &count, sizeof count));
    client = rsocket(AF_INET, SOCK_STREAM, 0);
    CHECK(!rsetsockopt(client, SOL_RDMA, RDMA_IOMAPSIZE, &count, sizeof count));
    FAILS(riomap(client, room[0], 10, PROT_WRITE, 0, 0), ENOTCONN);
    CHECK(!rconnect(client, (struct sockaddr *)&address, sizeof address));
    CHECK((server = raccept(listener, NULL, NULL)) >= 0);
    CHECK(riomap(server, room[0], sizeof room[0], PROT_WRITE, 0, 1000) == 1000);
    CHECK(riomap(server, room[1], 100, PROT_WRITE, 0, -1) == (off_t)(uintptr_t)room[1]);
    FAILS(riomap(server, room[2], 100, PROT_WRITE, 0, -1), ENOMEM);
    FAILS(riomap(server, room[2], 100, PROT_READ, 0, -1), EINVAL);
    CHECK(riowrite(client, bytes, 10, 1000, 0) == 0);
    char c;
    CHECK(rsend(server, "m", 1, 0) == 1 && rrecv(client, &c, 1, 0) == 1);
    CHECK(riowrite(client, bytes, sizeof bytes, 1000, 0) == sizeof bytes);
    CHECK(riowrite(client, bytes, 10, (uintptr_t)room[1] + 95, 0) == 5);
    CHECK(riowrite(client, bytes, 10, 999, 0) == 0);
    CHECK(rsend(client, "d", 1, 0) == 1 && rrecv(server, &c, 1, 0) == 1);
    CHECK(!memcmp(room[0], bytes, sizeof bytes) && !memcmp(room[1] + 95, bytes, 5));
    CHECK(!riounmap(server, room[1], 100));
    FAILS(riounmap(server, room[1], 100), EINVAL);
    CHECK(riomap(server, room[2], 100, PROT_WRITE, 0, 500) == 500);
    CHECK(rsend(server, "m", 1, 0) == 1 && rrecv(client, &c, 1, 0) == 1);
    CHECK(riowrite(client, bytes, 100, 500, 0) == 100);
    CHECK(rsend(client, "d", 1, 0) == 1 && rrecv(server, &c, 1, 0) == 1);
    CHECK(!memcmp(room[2], bytes, 100));
    close_pair();
}
"#,
    );
}

#[test]
fn datagrams_find_their_way_and_then_the_short_one() {
    run(
        "datagrams",
        r#"
static int new_datagram(struct sockaddr_in *own) {
    struct sockaddr_in here = loopback(0);
    socklen_t len = sizeof *own;
    int s = rsocket(AF_INET, SOCK_DGRAM, 0);
    CHECK(s >= 0 && !rbind(s, (struct sockaddr *)&here, sizeof here));
    CHECK(!rgetsockname(s, (struct sockaddr *)own, &len) && own->sin_port);
    return s;
}
int main(void) {
    struct sockaddr_in a_at, b_at, from;
    socklen_t len = sizeof from;
    int a = new_datagram(&a_at), b = new_datagram(&b_at);
    static char bytes[4096], room[4096];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = pattern(i);
    FAILS(rsend(a, bytes, 1, 0), EDESTADDRREQ);
    FAILS(rrecv(a, room, 1, MSG_DONTWAIT), EAGAIN);
    FAILS(rsendto(a, bytes, 4096, 0, (struct sockaddr *)&b_at, sizeof b_at), EMSGSIZE);
    /* Both ways, until both have long found the other's queue pair. */
    for (int i = 0; i < 40; i++) {
        int size = i * 40;
        CHECK(rsendto(a, bytes, size, 0, (struct sockaddr *)&b_at, sizeof b_at) == size);
        len = sizeof from;
        CHECK(rrecvfrom(b, room, 4096, 0, (struct sockaddr *)&from, &len) == size);
        CHECK(len == sizeof from && from.sin_port == a_at.sin_port && !memcmp(room, bytes, size));
        CHECK(rsendto(b, bytes, 9, 0, (struct sockaddr *)&from, len) == 9);
        CHECK(revents(a, POLLIN) == POLLIN && rrecv(a, room, 5, 0) == 5);
        CHECK(!memcmp(room, bytes, 5) && revents_now(a, POLLIN | POLLOUT) == POLLOUT);
    }
    CHECK(!rconnect(a, (struct sockaddr *)&b_at, sizeof b_at));
    CHECK(!rgetpeername(a, (struct sockaddr *)&from, &len) && from.sin_port == b_at.sin_port);
    CHECK(rwrite(a, "hello", 5) == 5);
    CHECK(rrecv(b, room, 9, MSG_PEEK) == 5 && rread(b, room, 9) == 5);
    CHECK(!memcmp(room, "hello", 5));
    CHECK(rclose(a) == 0 && rclose(b) == 0);
}
"#,
    );
}

/// Peers that are not rsockets: a program that connects with librdmacm and says what it likes.
const BAD_PEER: &str = r#"
#include <endian.h>
struct hello {
    uint8_t version, flags; uint16_t credits; uint8_t reserved[3], mappings;
    uint64_t list; uint32_t list_key, list_len; uint64_t buffer; uint32_t key, len;
} __attribute__((packed));
static struct rdma_cm_id *id;
static struct hello told;
static char memory[4096];
static struct ibv_mr *region;

/* Connects with `hello` as private data; what the server says is in `told`. */
static int bad_connect(struct hello *hello, int len) {
    struct ibv_qp_init_attr attr = {
        .cap = { 64, 64, 1, 1 }, .qp_type = IBV_QPT_RC, .sq_sig_all = 1 };
    struct rdma_conn_param param = {
        .private_data = hello, .private_data_len = len, .retry_count = 7, .rnr_retry_count = 7 };
    CHECK(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
    CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000));
    CHECK(!rdma_resolve_route(id, 2000));
    CHECK(!rdma_create_qp(id, NULL, &attr));
    CHECK(region = rdma_reg_write(id, memory, sizeof memory));
    for (int i = 0; i < 32; i++)
        CHECK(!rdma_post_recv(id, NULL, memory, 0, region));
    if (hello->list == 1) {
        hello->list = htobe64((uintptr_t)memory);
        hello->list_key = htobe32(region->rkey);
        hello->buffer = htobe64((uintptr_t)memory + 1024);
        hello->key = htobe32(region->rkey);
    }
    if (rdma_connect(id, &param))
        return -1;
    memcpy(&told, id->event->param.conn.private_data, sizeof told);
    CHECK((server = raccept(listener, NULL, NULL)) >= 0);
    return 0;
}

/* Writes `len` bytes at byte `at` of the server's list or buffer, and says `imm`. */
static void say(uint32_t imm, uint64_t addr, uint32_t key, int len) {
    struct ibv_sge sge = { (uintptr_t)memory + 2048, len, region->lkey };
    struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = len > 0,
        .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .imm_data = htobe32(imm) }, *bad;
    wr.wr.rdma.remote_addr = addr;
    wr.wr.rdma.rkey = key;
    CHECK(!ibv_post_send(id->qp, &wr, &bad));
    struct ibv_wc wc;
    CHECK(rdma_get_send_comp(id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
}

static void hang_up(void) {
    CHECK(!rclose(server));
    rdma_destroy_qp(id);
    CHECK(!rdma_dereg_mr(region) && !rdma_destroy_id(id));
}
#define GOOD { .version = 1, .credits = htobe16(8), .list = 1, .list_len = htobe32(2), \
    .len = htobe32(512) }
"#;

fn run_bad_peer(name: &str, body: &str) {
    run(name, &format!("{BAD_PEER}\n#line 1\n{body}"));
}

#[test]
fn requests_that_are_not_of_rsockets_are_refused() {
    run_bad_peer(
        "strangers",
        r#"
int main(void) {
    open_listener();
    struct hello hellos[4] = { GOOD, GOOD, GOOD, GOOD };
    hellos[1].version = 2;
    hellos[2].list_len = 0;
    int lens[4] = { 0, sizeof *hellos, sizeof *hellos, sizeof *hellos - 1 };
    for (int i = 0; i < 4; i++) {
        /* REQ has more room than that, so that a short one is one of zeros. */
        if (i == 3)
            memset(&hellos[i], 0, sizeof hellos[i]);
        FAILS(bad_connect(&hellos[i], lens[i]), ECONNREFUSED);
        rdma_destroy_qp(id);
        CHECK(!rdma_dereg_mr(region) && !rdma_destroy_id(id));
    }
    struct hello good = GOOD;
    CHECK(!bad_connect(&good, sizeof good));
    hang_up();
}
"#,
    );
}

#[test]
fn a_peer_that_says_it_sent_more_than_it_may_is_cut_off() {
    run_bad_peer(
        "too_much",
        r#"
int main(void) {
    char c;
    open_listener();
    /* Half the buffer is granted at first, the other half at once. */
    uint32_t lies[] = { 0x1fffffff, (1 << 17) + 1 };
    for (int i = 0; i < 2; i++) {
        struct hello good = GOOD;
        CHECK(!bad_connect(&good, sizeof good));
        say(lies[i], 0, 0, 0);
        FAILS(rrecv(server, &c, 1, 0), EPROTO);
        CHECK(rrecv(server, &c, 1, 0) == 0);
        FAILS(rsend(server, &c, 1, 0), ECONNRESET);
        CHECK(revents_now(server, POLLIN) & POLLIN);
        hang_up();
    }
}
"#,
    );
}

#[test]
fn a_peer_that_sends_more_messages_than_it_may_is_cut_off() {
    run_bad_peer(
        "too_many",
        r#"
int main(void) {
    static char bytes[500];
    open_listener();
    int size = 16;
    CHECK(!rsetsockopt(listener, SOL_RDMA, RDMA_RQSIZE, &size, sizeof size));
    struct hello good = GOOD;
    CHECK(!bad_connect(&good, sizeof good));
    CHECK(be16toh(told.credits) == 16);
    /* Nobody reads, but the socket is looked at, so that its receives are posted anew. */
    for (int i = 0; i < 40; i++) {
        say(1, be64toh(told.buffer) + i, be32toh(told.key), 1);
        revents_now(server, POLLIN);
    }
    CHECK(rrecv(server, bytes, 500, 0) == 16);
    FAILS(rrecv(server, bytes, 500, 0), EPROTO);
    hang_up();
}
"#,
    );
}

#[test]
fn nonsense_changes_nothing() {
    run_bad_peer(
        "nonsense",
        r#"
int main(void) {
    char c = 0;
    open_listener();
    struct hello good = GOOD;
    good.flags = 2;
    good.mappings = 255;
    CHECK(!bad_connect(&good, sizeof good));
    uint32_t words[] = { 0x20000001, 0x40000001, 0x60000000, 0xa0000001, 0xe0000003, 0xffffffff,
        0xc000ffff, 0xe0000001, 0 };
    for (int i = 0; i < 9; i++)
        say(words[i], 0, 0, 0);
    /* A list entry that leads nowhere, and one of no bytes. */
    memset(memory + 2048, 0xee, 32);
    say(0x80000009, be64toh(told.list), be32toh(told.list_key), 32);
    memory[2048] = 'a';
    say(1, be64toh(told.buffer), be32toh(told.key), 1);
    CHECK(rrecv(server, &c, 1, 0) == 1 && c == 'a');
    /* 512 bytes fit where the peer has said they may go; the rest would go to the entry. */
    static char bytes[100000];
    memset(bytes, 7, sizeof bytes);
    ssize_t sent = rsend(server, bytes, sizeof bytes, 0);
    CHECK(sent >= 512);
    CHECK(memory[1024] == 7 && memory[1024 + 511] == 7 && memory[1024 + 512] == 0);
    hang_up();
}
"#,
    );
}

#[test]
fn a_connection_that_did_not_come_about_has_no_peer() {
    run(
        "no_peer",
        r#"
int main(void) {
    struct sockaddr_in nobody = loopback(1), peer;
    socklen_t len = sizeof peer, error_len = sizeof(int);
    int error = 0;
    int socket = rsocket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    FAILS(rgetpeername(socket, (struct sockaddr *)&peer, &len), ENOTCONN);
    FAILS(rconnect(socket, (struct sockaddr *)&nobody, sizeof nobody), EINPROGRESS);
    CHECK(revents(socket, POLLOUT) & POLLERR);
    FAILS(rgetpeername(socket, (struct sockaddr *)&peer, &len), ENOTCONN);
    CHECK(!rgetsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &error_len));
    CHECK(error == ECONNREFUSED);
    CHECK(!rclose(socket));
    open_pair();
    CHECK(!rgetpeername(client, (struct sockaddr *)&peer, &len));
    CHECK(peer.sin_port == address.sin_port);
    CHECK(!rgetpeername(server, (struct sockaddr *)&peer, &len) && peer.sin_port);
    close_pair();
}
"#,
    );
}

#[test]
fn a_forked_child_does_not_seem_to_send_for_its_parent() {
    run(
        "forked",
        r#"
int main(void) {
    char c = 'a';
    open_pair();
    pid_t child = fork();
    if (!child) {
        FAILS(rsend(client, "b", 1, 0), EINVAL);
        FAILS(rrecv(client, &c, 1, 0), EINVAL);
        CHECK(!rfcntl(client, F_SETFD, FD_CLOEXEC));
        CHECK(!rclose(client) && !rclose(server));
        FAILS(rsend(client, "b", 1, 0), EBADF);
        int own = connect_to_listener();
        CHECK(rsend(own, "c", 1, 0) == 1 && rrecv(own, &c, 1, 0) == 1 && c == 'd');
        CHECK(!rclose(own));
        exit(0);
    }
    int accepted = raccept(listener, NULL, NULL), status;
    CHECK(rrecv(accepted, &c, 1, 0) == 1 && c == 'c' && rsend(accepted, "d", 1, 0) == 1);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(rsend(client, "e", 1, 0) == 1 && rrecv(server, &c, 1, 0) == 1 && c == 'e');
    close_pair();
    CHECK(!rclose(accepted));
}
"#,
    );
}
