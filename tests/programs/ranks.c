/* Two ranks: messages of growing size, whose bytes are checked, with their bandwidth; then
 * collectives, whose results are checked. Prints "ok" last. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 20, LARGEST = 4 << 20, COUNT = 100000 };

static void fail(const char *what)
{
    printf("wrong: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void check_bytes(const unsigned char *bytes, int size, int round)
{
    for (int i = 0; i < size; i++) {
        if (bytes[i] != (unsigned char)(i * 7 + round)) {
            fail("received bytes");
        }
    }
}

static void exchange(int rank, int size, unsigned char *bytes)
{
    double start = MPI_Wtime();
    for (int round = 0; round < ROUNDS; round++) {
        if (rank == 0) {
            for (int i = 0; i < size; i++) {
                bytes[i] = (unsigned char)(i * 7 + round);
            }
            MPI_Send(bytes, size, MPI_BYTE, 1, round, MPI_COMM_WORLD);
            memset(bytes, 0, size);
            MPI_Recv(bytes, size, MPI_BYTE, 1, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check_bytes(bytes, size, round);
        } else {
            memset(bytes, 0, size);
            MPI_Recv(bytes, size, MPI_BYTE, 0, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check_bytes(bytes, size, round);
            MPI_Send(bytes, size, MPI_BYTE, 0, round, MPI_COMM_WORLD);
        }
    }
    if (rank == 0) {
        double seconds = MPI_Wtime() - start;
        printf("%d bytes: %.3f MB/s\n", size, 2.0 * ROUNDS * size / seconds / 1e6);
    }
}

static void reduce(int rank)
{
    long *mine = malloc(COUNT * sizeof *mine), *sum = malloc(COUNT * sizeof *sum);
    for (long i = 0; i < COUNT; i++) {
        mine[i] = (rank + 1) * i;
    }
    MPI_Allreduce(mine, sum, COUNT, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (long i = 0; i < COUNT; i++) {
        if (sum[i] != 3 * i) {
            fail("allreduce");
        }
    }
    int all[2] = {-1, -1};
    MPI_Allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
    if (all[0] != 0 || all[1] != 1) {
        fail("allgather");
    }
    free(mine);
    free(sum);
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != 2) {
        fail("not two ranks");
    }
    unsigned char *bytes = malloc(LARGEST);
    for (int length = 1; length <= LARGEST; length *= 16) {
        exchange(rank, length, bytes);
    }
    exchange(rank, LARGEST, bytes);
    reduce(rank);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("ok\n");
    }
    free(bytes);
    MPI_Finalize();
    return 0;
}
