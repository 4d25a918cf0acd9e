//! Programs that fork, close descriptors they do not know, or have little stack or memory.

mod common;

fn run(name: &str, body: &str) {
    common::run_silent(common::PAIR, name, &[], body);
}

#[test]
fn a_child_that_waits_for_its_parents_events_is_refused_and_takes_none_away() {
    run(
        "child_waits",
        r#"
#include <sys/wait.h>
int main(void) {
    open_all();
    struct ibv_qp *qp = new_qp(IBV_QPT_RC, 0);
    connect_to(qp, qp);
    CHECK(!ibv_req_notify_cq(cq, 0));
    pid_t child = fork();
    if (!child) {
        alarm(10);
        struct ibv_cq *got;
        void *cookie;
        struct ibv_async_event event;
        errno = 0;
        CHECK(ibv_get_cq_event(channel, &got, &cookie) == -1 && errno == EINVAL);
        errno = 0;
        CHECK(ibv_get_async_event(context, &event) == -1 && errno == EINVAL);
        CHECK(!ibv_req_notify_cq(cq, 0));
        struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE }, *bad;
        ibv_post_send(qp, &wr, &bad);
        struct ibv_wc wc;
        CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
        CHECK(ibv_destroy_qp(qp) && ibv_destroy_cq(cq) && ibv_dereg_mr(mr) && ibv_dealloc_pd(pd));
        CHECK(!ibv_close_device(context));
        open_all(); /* anew */
        qp = new_qp(IBV_QPT_RC, 0);
        connect_to(qp, qp);
        wr.send_flags = IBV_SEND_SIGNALED;
        CHECK(!ibv_post_send(qp, &wr, &bad) && next().status == IBV_WC_SUCCESS);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;
    CHECK(!ibv_post_send(qp, &wr, &bad));
    struct ibv_cq *got;
    void *cookie;
    alarm(10);
    CHECK(!ibv_get_cq_event(channel, &got, &cookie) && got == cq);
    ibv_ack_cq_events(cq, 1);
    CHECK(next().status == IBV_WC_SUCCESS);
    CHECK(!ibv_destroy_qp(qp));
    close_all();
    return 0;
}
"#,
    );
}

#[test]
fn a_program_may_close_descriptors_it_does_not_know() {
    run(
        "closes_descriptors",
        r#"
int main(void) {
    open_all();
    struct ibv_qp *qp = new_qp(IBV_QPT_RC, 0);
    connect_to(qp, qp);
    for (int fd = 3; fd < 100; fd++)
        close(fd);
    CHECK(!ibv_req_notify_cq(cq, 0));
    struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;
    CHECK(!ibv_post_send(qp, &wr, &bad) && next().status == IBV_WC_SUCCESS);
    CHECK(!ibv_destroy_qp(qp));
    close_all();
    return 0;
}
"#,
    );
}

#[test]
fn a_thread_with_the_least_stack_posts_and_polls() {
    run(
        "little_stack",
        r#"
#include <limits.h>
#include <sys/mman.h>
static struct ibv_qp *a, *b;
static void *work(void *unused) {
    struct ibv_sge sge = piece(0, 4096), to = piece(8192, 4096);
    struct ibv_recv_wr recv = { 1, NULL, &to, 1 }, *bad_recv;
    struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
        .send_flags = IBV_SEND_SIGNALED }, *bad;
    for (int round = 0; round < 20; round++) {
        CHECK(!ibv_post_recv(b, &recv, &bad_recv));
        if (round & 1) {
            sge.length = 60;
            wr.send_flags |= IBV_SEND_INLINE;
        }
        CHECK(!ibv_post_send(a, &wr, &bad));
        CHECK(next().status == IBV_WC_SUCCESS && next().status == IBV_WC_SUCCESS);
    }
    wr.num_sge = 99;
    CHECK(ibv_post_send(a, &wr, &bad) == EINVAL);
    return unused;
}

int main(void) {
    open_all();
    a = new_qp(IBV_QPT_RC, 0), b = new_qp(IBV_QPT_RC, 0);
    connect_to(a, b);
    connect_to(b, a);
    size_t size = sysconf(_SC_THREAD_STACK_MIN) + 4096;
    char *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    pthread_attr_t attr;
    CHECK(!pthread_attr_init(&attr) && !pthread_attr_setstack(&attr, stack, size));
    pthread_t thread;
    CHECK(!pthread_create(&thread, &attr, work, NULL) && !pthread_join(thread, NULL));
    size_t untouched = 0;
    while (!stack[untouched])
        untouched++;
    if (getenv("FERROCE_TEST_MEASURE"))
        fprintf(stderr, "%zu of %zu bytes of stack used\n", size - untouched, size);
    CHECK(untouched > 512);
    CHECK(!ibv_destroy_qp(a) && !ibv_destroy_qp(b));
    close_all();
    return 0;
}
"#,
    );
}

#[test]
fn a_queue_there_is_no_memory_for_is_an_error() {
    run(
        "little_memory",
        r#"
#include <sys/resource.h>
static size_t mapped(void) {
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file && fscanf(file, "%zu", &pages) == 1);
    fclose(file);
    return pages * 4096;
}

int main(void) {
    open_all();
    struct rlimit limit = { mapped() + (8 << 20), RLIM_INFINITY };
    CHECK(!setrlimit(RLIMIT_AS, &limit));
    errno = 0;
    CHECK(!ibv_create_cq(context, 1 << 20, NULL, NULL, 0) && errno == ENOMEM);
    struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
        .cap = { 1 << 15, 1 << 15, 32, 32, 1024 } };
    errno = 0;
    CHECK(!ibv_create_qp(pd, &init) && errno == ENOMEM);
    struct ibv_srq_init_attr srq_init = { .attr = { .max_wr = 1 << 15, .max_sge = 32 } };
    errno = 0;
    CHECK(!ibv_create_srq(pd, &srq_init) && errno == ENOMEM);
    errno = 0;
    CHECK(ibv_resize_cq(cq, 1 << 20) && errno == ENOMEM);
    srq_init.attr.max_wr = 8;
    struct ibv_srq *srq = ibv_create_srq(pd, &srq_init);
    CHECK(srq);
    struct ibv_srq_attr attr = { .max_wr = 1 << 15 };
    errno = 0;
    CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR) && errno == ENOMEM);
    CHECK(!ibv_query_srq(srq, &attr) && attr.max_wr == 8);
    /* What there is goes on. */
    struct ibv_qp *qp = new_qp(IBV_QPT_RC, 0);
    connect_to(qp, qp);
    struct ibv_send_wr wr = { .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;
    CHECK(!ibv_post_send(qp, &wr, &bad) && next().status == IBV_WC_SUCCESS);
    CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_srq(srq));
    close_all();
    return 0;
}
"#,
    );
}

#[test]
fn a_program_that_may_write_no_file_is_told_so() {
    run(
        "little_files",
        r#"
#include <sys/resource.h>
int main(void) {
    struct rlimit limit = { 4096, RLIM_INFINITY };
    CHECK(!setrlimit(RLIMIT_FSIZE, &limit));
    setenv("FERROCE_LOG", "off", 1);
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0]);
    errno = 0;
    CHECK(!ibv_open_device(list[0]) && errno == EFBIG);
    ibv_free_device_list(list);
    return 0;
}
"#,
    );
}

#[test]
fn a_thread_that_blocks_all_signals_survives_memory_that_has_gone() {
    run(
        "blocked_signals",
        r#"
#include <signal.h>
#include <sys/mman.h>
int main(void) {
    sigset_t all;
    sigfillset(&all);
    CHECK(!pthread_sigmask(SIG_BLOCK, &all, NULL));
    open_all();
    errno = 0;
    CHECK(!ibv_reg_mr(pd, (void *)16, 4096, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT);
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ibv_mr *gone = ibv_reg_mr(pd, page, 4096, IBV_ACCESS_LOCAL_WRITE);
    CHECK(gone && !munmap(page, 4096));
    struct ibv_qp *qp = new_qp(IBV_QPT_RC, 0);
    connect_to(qp, qp);
    struct ibv_sge sge = { (uintptr_t)page, 64, gone->lkey };
    struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = IBV_SEND_SIGNALED, .wr.rdma = { (uintptr_t)memory, mr->rkey } }, *bad;
    CHECK(!ibv_post_send(qp, &wr, &bad) && next().status == IBV_WC_LOC_PROT_ERR);
    CHECK(!ibv_destroy_qp(qp) && !ibv_dereg_mr(gone));
    close_all();
    return 0;
}
"#,
    );
}
