/* Prints what a program can see of the functions that the library stands before. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#define SAY(call)                                                                                  \
    do {                                                                                           \
        errno = 99;                                                                                \
        long result = (call);                                                                      \
        int error = errno;                                                                         \
        printf("%s: %ld %d\n", #call, result, error);                                              \
    } while (0)

static int set;
static volatile int cleaned, handled;
static sigjmp_buf place;

static void handle(int signal) {
    (void)signal;
    /* Waiting in a handler is permitted. */
    poll(NULL, 0, 0);
    handled++;
}

static void jump(int signal) {
    (void)signal;
    siglongjmp(place, 1);
}

static void clean(void *argument) {
    (void)argument;
    cleaned++;
}

static void *wait_for_cancel(void *argument) {
    struct epoll_event event;
    pthread_cleanup_push(clean, NULL);
    if (argument)
        poll(NULL, 0, -1);
    else
        epoll_wait(set, &event, 1, -1);
    pthread_cleanup_pop(0);
    return NULL;
}

static void in_a_moment(int number, void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler};
    sigaction(number, &action, NULL);
    /* Again and again, as the first may come before the wait. */
    struct itimerval time = {{0, 20000}, {0, 20000}};
    setitimer(ITIMER_REAL, &time, NULL);
}

int main(int count, char **arguments) {
    (void)arguments;
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct epoll_event events[8] = {{0}};
    struct pollfd arrays[4] = {{.fd = -1}};
    char bytes[16];
    int pipes[2], pair[2];
    struct timespec none = {0, 0}, wrong = {0, -1};
    struct timeval soon = {0, 1000};
    fd_set descriptors;
    printf("next descriptor %d\n", dup(0));
    SAY(pipe2(pipes, O_NONBLOCK));
    SAY(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
    set = epoll_create1(0);
    SAY(epoll_wait(-1, events, 8, 0));
    SAY(epoll_wait(set, events, 0, 0));
    SAY(epoll_pwait(pipes[0], events, 8, 0, NULL));
    SAY(epoll_pwait2(set, events, 8, &wrong, NULL));
    SAY(epoll_pwait2(set, events, 8, &none, NULL));
    SAY(epoll_ctl(set, EPOLL_CTL_ADD, pair[0], &(struct epoll_event){EPOLLIN, {.u64 = 5}}));
    SAY(epoll_ctl(set, EPOLL_CTL_ADD, pair[0], &(struct epoll_event){EPOLLIN, {.u64 = 5}}));
    SAY(epoll_ctl(set, 77, pair[0], events));
    SAY(poll(arrays, (nfds_t)count, 0));
    SAY(ppoll(arrays, (nfds_t)count, &wrong, NULL));
    SAY(ppoll(arrays, (nfds_t)count, &none, NULL));
    FD_ZERO(&descriptors);
    SAY(select(-1, &descriptors, NULL, NULL, &soon));
    SAY(select(1, NULL, NULL, NULL, &soon));
    printf("left %ld\n", (long)soon.tv_usec);
    SAY(pselect(1, NULL, NULL, NULL, &none, NULL));
    SAY(read(pipes[0], bytes, sizeof bytes - (size_t)count));
    SAY(read(-1, bytes, (size_t)count));
    SAY(readv(pipes[0], &(struct iovec){bytes, 1}, 1));
    SAY(recv(pair[0], bytes, (size_t)count, 0));
    SAY(recvfrom(pair[0], bytes, (size_t)count, 0, NULL, NULL));
    SAY(recvmsg(pair[0], &(struct msghdr){0}, MSG_DONTWAIT));
    SAY(accept(pair[0], NULL, NULL));
    SAY(accept4(-1, NULL, NULL, 0));
    SAY(write(pair[1], "abc", 3));
    SAY(epoll_wait(set, events, 8, -1));
    printf("data %d\n", (int)events[0].data.u64);
    SAY(read(pair[0], bytes, sizeof bytes));

    in_a_moment(SIGALRM, handle);
    SAY(epoll_wait(set, events, 8, -1));
    SAY(poll(NULL, 0, -1));
    printf("handled %d\n", handled >= 2);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
    if (sigsetjmp(place, 1) == 0) {
        in_a_moment(SIGALRM, jump);
        SAY(epoll_wait(set, events, 8, -1));
    }
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
    for (intptr_t kind = 0; kind < 2; kind++) {
        pthread_t thread;
        void *result;
        pthread_create(&thread, NULL, wait_for_cancel, (void *)kind);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        printf("cancelled %d, cleaned %d\n", result == PTHREAD_CANCELED, cleaned);
    }
    puts("over");
    return 7;
}
