//! Programs that know only the system's sockets, with the library preloaded.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Helpers in C: each check prints the line it is on when it fails.
const PRELUDE: &str = r#"
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#define CHECK(x) do { if (!(x)) { \
    printf("line %d: %s (errno %d)\n", __LINE__, #x, errno); exit(1); } } while (0)
static struct sockaddr_in address;
static socklen_t length = sizeof address;
static int listener, client, server;
/* What the system has behind the number: not a socket of TCP. */
static int is_rsocket(int fd) {
    struct sockaddr_storage behind;
    socklen_t len = sizeof behind;
    CHECK(!syscall(SYS_getsockname, fd, &behind, &len));
    return behind.ss_family == AF_UNIX;
}
static void open_listener(void) {
    int one = 1;
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK((listener = socket(AF_INET, SOCK_STREAM, 0)) >= 0 && is_rsocket(listener));
    CHECK(!setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
    CHECK(!bind(listener, (void *)&address, sizeof address) && !listen(listener, 5));
    CHECK(!getsockname(listener, (void *)&address, &length) && address.sin_port);
}
static void open_pair(void) {
    CHECK((client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP)) >= 0);
    CHECK(!connect(client, (void *)&address, sizeof address));
    CHECK((server = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0 && is_rsocket(server));
}
"#;

/// Compiles and runs a program that prints only what is wrong.
fn run(name: &str, body: &str) {
    let test = std::env::current_exe().expect("path of the test");
    let deps = test.parent().expect("a folder");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("preload-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    std::os::unix::fs::symlink(deps.join("libferroce_verbs.so"), folder.join("librdmacm.so.1"))
        .expect("a link");
    let Some(program) = compile(&folder, &format!("{PRELUDE}\n#line 1\n{body}")) else { return };
    let output = Command::new(program)
        .env("LD_PRELOAD", deps.join("librspreload.so"))
        .env("LD_LIBRARY_PATH", &folder)
        .env("FERROCE_FABRIC", folder.join("fabric"))
        .env_remove("FERROCE_LOG")
        .current_dir(&folder)
        .output()
        .expect("the program runs");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!((text(&output.stdout), text(&output.stderr)), (String::new(), String::new()));
    assert!(output.status.success(), "{}", output.status);
}

/// `None`, with the reason printed, where there is no compiler.
fn compile(folder: &Path, source: &str) -> Option<PathBuf> {
    let (file, program) = (folder.join("program.c"), folder.join("program"));
    std::fs::write(&file, source).expect("the source is written");
    match Command::new("cc").arg(&file).arg("-o").arg(&program).arg("-lpthread").output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(program)
        }
        Err(error) => {
            println!("skipped: no C compiler ({error})");
            None
        }
    }
}

#[test]
fn sockets_and_their_copies() {
    run(
        "copies",
        r#"
int main(void) {
    char c[16];
    open_listener();
    open_pair();
    struct stat is;
    CHECK(!fstat(client, &is) && S_ISSOCK(is.st_mode));
    CHECK(fcntl(client, F_GETFD) == FD_CLOEXEC && fcntl(client, F_GETFL) == O_RDWR);
    CHECK(write(client, "hello", 5) == 5 && read(server, c, 16) == 5 && !memcmp(c, "hello", 5));
    struct iovec iov[2] = { { "ab", 2 }, { "cd", 2 } };
    CHECK(writev(server, iov, 2) == 4 && recv(client, c, 4, MSG_WAITALL) == 4);
    /* A copy keeps the socket open. */
    int copy = dup(client), other = fcntl(client, F_DUPFD, 50);
    CHECK(copy >= 0 && other >= 50 && dup2(copy, 60) == 60);
    CHECK(!close(client) && !close(copy) && !close(other));
    CHECK(send(60, "x", 1, 0) == 1 && read(server, c, 1) == 1);
    int one = 1;
    CHECK(!ioctl(server, FIONBIO, &one) && read(server, c, 1) == -1 && errno == EAGAIN);
    CHECK(send(60, "yz", 2, 0) == 2);
    struct pollfd fd = { server, POLLIN, 0 };
    CHECK(poll(&fd, 1, -1) == 1 && fd.revents == POLLIN);
    CHECK(!ioctl(server, FIONREAD, &one) && one == 2 && read(server, c, 2) == 2);
    CHECK(!shutdown(60, SHUT_WR) && poll(&fd, 1, -1) == 1 && read(server, c, 1) == 0);
    CHECK(!close(60) && !close(server) && !close(listener));
    CHECK(close(listener) == -1 && errno == EBADF);
    int pair[2];
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair) && write(pair[0], "q", 1) == 1);
    CHECK(read(pair[1], c, 1) == 1 && c[0] == 'q');
}
"#,
    );
}

#[test]
fn waits_of_sockets_and_files() {
    run(
        "waits",
        r#"
static void *writes(void *fd) { CHECK(write(*(int *)fd, "w", 1) == 1); return NULL; }
int main(void) {
    char c;
    int pipes[2];
    pthread_t thread;
    open_listener();
    open_pair();
    CHECK(!pipe(pipes));
    int set = epoll_create1(0);
    struct epoll_event event = { EPOLLIN, { .fd = server } }, events[8];
    CHECK(!epoll_ctl(set, EPOLL_CTL_ADD, server, &event));
    event.data.fd = pipes[0];
    CHECK(!epoll_ctl(set, EPOLL_CTL_ADD, pipes[0], &event));
    event.data.fd = listener;
    CHECK(!epoll_ctl(set, EPOLL_CTL_ADD, listener, &event));
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, listener, &event) == -1 && errno == EEXIST);
    CHECK(epoll_wait(set, events, 8, 0) == 0 && epoll_wait(set, events, 8, 10) == 0);
    CHECK(!pthread_create(&thread, NULL, writes, &pipes[1]));
    CHECK(epoll_wait(set, events, 8, -1) == 1 && events[0].data.fd == pipes[0]);
    CHECK(!pthread_join(thread, NULL) && read(pipes[0], &c, 1) == 1);
    CHECK(!pthread_create(&thread, NULL, writes, &client));
    CHECK(epoll_wait(set, events, 8, -1) == 1 && events[0].data.fd == server);
    CHECK(!pthread_join(thread, NULL) && events[0].events == EPOLLIN);
    CHECK(write(pipes[1], "p", 1) == 1);
    CHECK(epoll_wait(set, events, 8, -1) == 2 && epoll_wait(set, events, 1, -1) == 1);
    CHECK(read(server, &c, 1) == 1);

    struct pollfd fds[3] = { { server, POLLIN }, { pipes[0], POLLIN }, { client, POLLOUT } };
    CHECK(poll(fds, 3, -1) == 2 && !fds[0].revents && fds[1].revents == POLLIN);
    fd_set in, out;
    FD_ZERO(&in); FD_ZERO(&out);
    FD_SET(server, &in); FD_SET(pipes[0], &in); FD_SET(client, &out);
    struct timeval long_time = { 60, 0 };
    CHECK(select(64, &in, &out, NULL, &long_time) == 2);
    CHECK(!FD_ISSET(server, &in) && FD_ISSET(pipes[0], &in) && FD_ISSET(client, &out));
    CHECK(read(pipes[0], &c, 1) == 1);
    /* Closed members are members no more. */
    CHECK(!close(client));
    CHECK(epoll_wait(set, events, 8, -1) == 1 && events[0].data.fd == server);
    CHECK(!close(server) && epoll_wait(set, events, 8, 0) == 0);
    CHECK(!close(set) && epoll_wait(set, events, 8, 0) == -1 && errno == EBADF);
}
"#,
    );
}

#[test]
fn files_are_sent() {
    run(
        "files",
        r#"
int main(void) {
    static char bytes[200000], room[200000];
    for (int i = 0; i < 200000; i++)
        bytes[i] = i * 7 + i / 251;
    int file = open("file", O_RDWR | O_CREAT, 0600);
    CHECK(file >= 0 && write(file, bytes, sizeof bytes) == sizeof bytes);
    open_listener();
    open_pair();
    off_t at = 100000;
    CHECK(sendfile(client, file, &at, 50000) == 50000 && at == 150000);
    CHECK(recv(server, room, 50000, MSG_WAITALL) == 50000);
    CHECK(!memcmp(room, bytes + 100000, 50000));
    CHECK(lseek(file, 199990, SEEK_SET) == 199990);
    CHECK(sendfile(client, file, NULL, 100) == 10 && lseek(file, 0, SEEK_CUR) == 200000);
    CHECK(sendfile(client, file, NULL, 100) == 0);
    CHECK(recv(server, room, 10, MSG_WAITALL) == 10 && !memcmp(room, bytes + 199990, 10));
    CHECK(sendfile(file, server, NULL, 100) == -1 && errno == EINVAL);
}
"#,
    );
}

#[test]
fn who_is_not_in_the_fabric_is_reached_by_the_system() {
    run(
        "system",
        r#"
int main(void) {
    char c;
    /* A listener of the system, as of a program that runs without all this. */
    int there = syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(!syscall(SYS_bind, there, &address, sizeof address) && !syscall(SYS_listen, there, 5));
    CHECK(!syscall(SYS_getsockname, there, &address, &length));
    for (int flags = 0; flags <= SOCK_NONBLOCK; flags += SOCK_NONBLOCK) {
        int one = 1, error = -1;
        socklen_t len = sizeof error;
        CHECK((client = socket(AF_INET, SOCK_STREAM | flags, 0)) >= 0 && is_rsocket(client));
        CHECK(!setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
        int outcome = connect(client, (void *)&address, sizeof address);
        CHECK(!outcome || (flags && errno == EINPROGRESS));
        CHECK(!is_rsocket(client));
        struct pollfd fd = { client, POLLOUT, 0 };
        CHECK(poll(&fd, 1, -1) == 1);
        CHECK(!getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &len) && !error);
        CHECK(!getsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, &len) && one);
        CHECK(!!(fcntl(client, F_GETFL) & O_NONBLOCK) == !!flags);
        CHECK((server = syscall(SYS_accept, there, NULL, NULL)) >= 0);
        CHECK(write(client, "s", 1) == 1 && read(server, &c, 1) == 1 && c == 's');
        CHECK(!close(client) && !close(server));
    }
    CHECK(!close(there));
    CHECK((client = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
    CHECK(connect(client, (void *)&address, sizeof address) == -1 && errno == ECONNREFUSED);
    int datagram = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(datagram >= 0 && !is_rsocket(datagram));
}
"#,
    );
}
